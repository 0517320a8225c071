-- `apply`: the only code that changes durable keys. It reads the event and the projection, nothing else, so that a rebuild
-- with the same events and ids gives equal content. Payloads (bodies, spans) travel beside the event.
local A = {}

-- The score is the rollout's creation number, so every index is in creation order.
function A.set_status(prefix, id, number, from, to)
  if from ~= to then
    if from then
      redis.call('ZREM', prefix .. 'index:status:' .. from, id)
    end
    redis.call('ZADD', prefix .. 'index:status:' .. to, number, id)
  end
end

function A.store(prefix, payloads)
  for at = 1, payloads and #payloads or 0, 2 do
    redis.call('SET', prefix .. payloads[at], payloads[at + 1])
  end
end

-- A rollout is born: on the queue (rollout_enqueued), or outside it (rollout_started).
function A.created(prefix, id, e, payloads)
  A.store(prefix, payloads)
  local queued = e.type == 'rollout_enqueued'
  local status = queued and 'queuing' or 'preparing'
  local fields = { 'status', status, 'n', e.n, 'start', e.time, 'body', e.body, 'max', e.max, 'deliveries', '0' }
  for _, name in ipairs({ 'mode', 'resources', 'timeout', 'unresponsive', 'retry' }) do
    U.put(fields, name, e[name])
  end
  if queued then
    U.put(fields, 'entry', id)
    A.push(prefix, 'tasks', id, 'rollout', e.rollout)
  end
  redis.call('HSET', prefix .. 'rollout:' .. e.rollout, unpack(fields))
  redis.call('ZADD', prefix .. 'index:created', e.n, e.rollout)
  A.set_status(prefix, e.rollout, e.n, nil, status)
end

-- The rollout's part of any later event: status, queue entry, counters, and the finished and dead streams.
function A.rollout(prefix, id, e)
  local key = prefix .. 'rollout:' .. e.rollout
  local old = U.read(key, { 'status', 'n' })
  local set, del = {}, {}
  for _, name in ipairs({ 'mode', 'resources', 'timeout', 'unresponsive', 'retry', 'max', 'deliveries', 'lost' }) do
    if e[name] == '' then
      del[#del + 1] = name
    else
      U.put(set, name, e[name])
    end
  end
  U.put(set, 'body', e.rollout_body)
  if e.unqueue then
    redis.call('XACK', prefix .. 'tasks', 'runners', e.unqueue)
    redis.call('XDEL', prefix .. 'tasks', e.unqueue)
    del[#del + 1] = 'entry'
  end
  if e.requeue then
    A.push(prefix, 'tasks', id, 'rollout', e.rollout)
  end
  if e.undead then
    redis.call('XDEL', prefix .. 'dead', e.undead)
    del[#del + 1] = 'dead'
  end
  if e.to then
    A.move(prefix, id, e, old, set, del)
  end
  -- Removed before set: a re-queued rollout loses its old entry and gets a new one.
  if #del > 0 then
    redis.call('HDEL', key, unpack(del))
  end
  U.put(set, 'entry', e.requeue and id)
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
end
