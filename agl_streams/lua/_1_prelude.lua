-- Shared helpers of every command (`U`) and the table of commands (`C`): the prefix of the shard's keys, its clock, its event counter, and `emit`.
-- SCHEMA and the field lists (ROLLOUT, ATTEMPT, WORKER) are put in front of this file by functions.py, so that Lua and
-- Python read one list. Numbers are formatted, never concatenated: concatenation keeps 14 digits and a time has 16.
local U, C = {}, {}

function U.int(number)
  return string.format('%.0f', number)
end

-- The fields of a flat array as a map.
function U.map(flat)
  local map = {}
  for i = 1, #flat, 2 do
    map[flat[i]] = flat[i + 1]
  end
  return map
end

-- Appends a field unless its value is absent (nil or false, which is what Redis gives for a missing one).
function U.put(flat, name, value)
  if value then
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
end

-- Named fields of a hash as a map; a missing field stays nil. Never HGETALL: users fill some of these hashes.
function U.read(key, names)
  local values = redis.call('HMGET', key, unpack(names))
  local map = {}
  for i = 1, #names do
    map[names[i]] = values[i] or nil
  end
  return map
end

-- Opens the shard for a writing command. Returns its context, or nil and an outcome word.
-- The clock argument is empty except in tests; event time never runs backwards.
function U.open(keys, clock)
  local meta = redis.call('HMGET', keys[1], 'schema', 'n', 'time')
  if not meta[1] then
    return nil, 'no_namespace'
  end
  if tonumber(meta[1]) > SCHEMA then
    return nil, 'upgrade'
  end
  local now, n = tonumber(clock), tonumber(meta[2])
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  now = math.max(now, tonumber(meta[3]))
  return { prefix = string.sub(keys[1], 1, -5), meta = keys[1], n = n, now = now, time = U.int(now) }
end

-- Writes one event and applies it: the only door to the log and, through `apply`, to every durable key. Each call leaves
-- log and projections in agreement, so an error between two of them loses nothing.
-- `payloads` has, in turn, a key's name without prefix (or a span id) and the opaque bytes that travel beside the event.
function U.emit(ctx, kind, fields, payloads)
  local n = ctx.n + 1
  local e = U.map(fields)
  e.type, e.n, e.time = kind, U.int(n), ctx.time
  local id = redis.call('XADD', ctx.prefix .. 'log', '*', 'type', kind, 'n', e.n, 'time', e.time, unpack(fields))
  U.apply(ctx.prefix, id, e, payloads)
  ctx.n = n
  return id
end

-- A request leaves a mark for a while, so that its repeat is told from a new request: a repeat may arrive after others
-- have changed what it was about. Live state. Returns what was remembered of the request, or false.
function U.recall(ctx, token)
  return redis.call('GET', ctx.prefix .. 'live:request:' .. token)
end

function U.remember(ctx, token, answer)
  redis.call('SET', ctx.prefix .. 'live:request:' .. token, answer, 'EX', REQUEST_MEMORY_S)
end

-- Runs a command on the stream and makes its consumer group first where a flush or an operator removed it.
function U.with_group(stream, group, from, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and string.sub(reply.err, 1, 7) == 'NOGROUP' then
    redis.call('XGROUP', 'CREATE', stream, group, from, 'MKSTREAM')
    reply = redis.call(...)
  elseif type(reply) == 'table' and reply.err then
    error(reply)
  end
  return reply
end
