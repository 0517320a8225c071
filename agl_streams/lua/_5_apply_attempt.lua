-- `apply` for attempts, spans, workers and resources, and the dispatch by event type.

-- A new attempt takes the rollout over, and its worker is busy with it.
function A.attempt_started(prefix, id, e)
  local fields = { 'seq', e.seq, 'status', 'preparing', 'start', e.time }
  U.put(fields, 'worker', e.worker)
  U.put(fields, 'lease', e.lease)
  redis.call('HSET', prefix .. 'attempt:' .. e.rollout .. ':' .. e.attempt, unpack(fields))
  redis.call('HSET', prefix .. 'rollout:' .. e.rollout, 'attempts', e.seq, 'latest', e.attempt, 'a:' .. e.seq, e.attempt)
  redis.call('HINCRBY', prefix .. 'meta', 'attempts', 1)
  A.rollout(prefix, id, e)
  if e.worker then
    A.worker(prefix, e, e.worker, 'preparing', true)
  end
end

-- The attempt's part of a move or an update, then the rollout's.
function A.attempt_moved(prefix, id, e, payloads)
  A.store(prefix, payloads)
  local key = prefix .. 'attempt:' .. e.rollout .. ':' .. e.attempt
  local fields, old = {}, U.read(key, { 'worker', 'heartbeat' })
  U.put(fields, 'status', e.status)
  U.put(fields, 'worker', e.worker)
  U.put(fields, 'body', e.body)
  U.put(fields, 'heartbeat', e.heartbeat)
  if e.status then
    if S.dated_end[e.status] then
      U.put(fields, 'end', e.time)
    else
      redis.call('HDEL', key, 'end')
    end
    if e.reason then
      U.put(fields, 'reason', e.reason)
    else
      redis.call('HDEL', key, 'reason')
    end
  end
  if #fields > 0 then
    redis.call('HSET', key, unpack(fields))
  end
  A.rollout(prefix, id, e)
  local worker = e.worker or old.worker
  if worker and (e.status or e.worker) then
    local status = e.status or redis.call('HGET', key, 'status')
    A.worker(prefix, e, worker, status, false)
  end
end

-- A worker's row follows its attempts. It changes on an attempt's end only if it shows that attempt; a first span does
-- not take the row of a worker that is busy with another.
function A.worker(prefix, e, worker, status, claimed)
  local key = prefix .. 'worker:' .. worker
  local row = U.read(key, { 'status', 'rollout', 'attempt' })
  redis.call('ZADD', prefix .. 'index:workers', 'NX', e.n, worker)
  if S.open[status] then
    if e.type == 'attempt_running' and row.status == 'busy' then
      return
    end
    redis.call('HSET', key, 'status', 'busy', 'busy', e.time, 'rollout', e.rollout, 'attempt', e.attempt, 'n', e.n)
    if claimed and e.unqueue then
      redis.call('HSET', key, 'dequeue', e.time)
    end
  elseif row.attempt == e.attempt and row.rollout == e.rollout then
    local now = (status == 'succeeded' or status == 'failed') and 'idle' or 'unknown'
    redis.call('HSET', key, 'status', now, 'idle', e.time, 'n', e.n)
    redis.call('HDEL', key, 'rollout', 'attempt')
  end
end

-- A dequeue that found nothing, by a worker that was not idle.
function A.worker_idle(prefix, id, e)
  local key = prefix .. 'worker:' .. e.worker
  redis.call('ZADD', prefix .. 'index:workers', 'NX', e.n, e.worker)
  redis.call('HSET', key, 'status', 'idle', 'idle', e.time, 'dequeue', e.time, 'n', e.n)
  redis.call('HDEL', key, 'rollout', 'attempt')
end

-- Payloads and the heartbeat at once; sums are the aggregator's (fold.lua), because only sums commute.
function A.spans(prefix, id, e, payloads)
  local attempt = e.rollout .. ':' .. e.attempt
  local values = {}
  for at = 1, #payloads, 2 do
    values[at], values[at + 1] = payloads[at], id .. payloads[at + 1]
  end
  redis.call('HSET', prefix .. 'spans:' .. attempt, unpack(values))
  local seen = redis.call('HGET', prefix .. 'attempt:' .. attempt, 'heartbeat')
  if not seen or tonumber(seen) < tonumber(e.time) then
    redis.call('HSET', prefix .. 'attempt:' .. attempt, 'heartbeat', e.time)
  end
end

function A.resources(prefix, id, e, payloads)
  A.store(prefix, payloads)
  redis.call('HSET', prefix .. 'resources:' .. e.resources, 'version', e.version, 'create', e.create, 'update', e.time)
  redis.call('ZADD', prefix .. 'resources', e.n, e.resources)
end

A.by_type = {
  rollout_enqueued = A.created,
  rollout_started = A.created,
  rollout_updated = function(prefix, id, e, payloads) A.store(prefix, payloads) A.rollout(prefix, id, e) end,
  rollout_dead = A.rollout,
  redelivered = A.rollout,
  attempt_started = A.attempt_started,
  attempt_running = A.attempt_moved,
  attempt_ended = A.attempt_moved,
  attempt_lost = A.attempt_moved,
  attempt_updated = A.attempt_moved,
  spans = A.spans,
  worker_idle = A.worker_idle,
  resources_updated = A.resources,
  grace = function() end,
}

function U.apply(prefix, id, e, payloads)
  A.by_type[e.type](prefix, id, e, payloads)
  redis.call('HSET', prefix .. 'meta', 'n', e.n, 'time', e.time)
end
