-- name: setup
-- does: makes a shard's meta and consumer groups where they are missing, and checks that this release and shard count fit.
-- flags: allow-oom
-- keys: meta
-- args: clock, shard count
-- result: ok, shard count; or wrong_shards, the recorded count; or upgrade; or foreign_key
-- events:

-- A key of another kind under one of the fixed names, or nil: met later, it would fail an event that is half applied.
function C.foreign_key(prefix)
  for name, expected in pairs(FIXED_KEYS) do
    local kind = redis.call('TYPE', prefix .. name).ok
    if kind ~= 'none' and kind ~= expected then
      return prefix .. name
    end
  end
end

function C.setup(keys, args)
  local meta = redis.pcall('HMGET', keys[1], 'schema', 'shards')
  if meta.err then
    return { 'foreign_key' }
  end
  local prefix = string.sub(keys[1], 1, -5)
  if meta[2] and meta[2] ~= args[2] then
    return { 'wrong_shards', meta[2] }
  end
  if meta[1] and tonumber(meta[1]) > SCHEMA then
    return { 'upgrade' }
  end
  local foreign = C.foreign_key(prefix)
  if foreign then
    return { 'foreign_key', foreign }
  end
  if not meta[1] then
    redis.call('HSET', keys[1], 'schema', U.int(SCHEMA), 'shards', args[2], 'n', '0', 'time', '0')
  elseif tonumber(meta[1]) < SCHEMA then
    redis.call('HSET', keys[1], 'schema', U.int(SCHEMA))
  end
  -- A group that exists is the usual case, and its BUSYGROUP error the answer we want.
  redis.pcall('XGROUP', 'CREATE', prefix .. 'tasks', 'runners', '0', 'MKSTREAM')
  local from = redis.call('HGET', keys[1], 'folded_id') or '0'
  redis.pcall('XGROUP', 'CREATE', prefix .. 'log', 'aggregator', from, 'MKSTREAM')
  return { 'ok', args[2] }
end
