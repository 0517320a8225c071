-- `apply` for workers and resources, and the dispatch by event type.

-- A worker's row follows its attempts. It changes on an attempt's end only if it shows that attempt; only a beginning, or
-- a report that names the worker, takes the row of one that is busy. What was taken off the queue was dequeued.
function A.worker(prefix, e, worker, status, claimed)
  local key = prefix .. 'worker:' .. worker
  local row = U.read(key, { 'status', 'rollout', 'attempt' })
  redis.call('ZADD', prefix .. 'index:workers', 'NX', e.n, worker)
  if S.open[status] then
    if not e.worker and row.status == 'busy' then
      return
    end
    redis.call('HSET', key, 'status', 'busy', 'busy', e.time, 'rollout', e.rollout, 'attempt', e.attempt, 'n', e.n)
    if claimed and e.deliveries then
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

-- A worker that was idle for long is forgotten. Nothing of its attempts changes.
function A.worker_retired(prefix, id, e)
  redis.call('DEL', prefix .. 'worker:' .. e.worker)
  redis.call('ZREM', prefix .. 'index:workers', e.worker)
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
  dead_requeued = A.rollout,
  dead_dropped = A.rollout,
  redelivered = A.rollout,
  attempt_started = A.attempt_started,
  attempt_running = A.attempt_moved,
  attempt_ended = A.attempt_moved,
  attempt_lost = A.attempt_moved,
  attempt_updated = A.attempt_moved,
  spans = A.spans,
  worker_idle = A.worker_idle,
  worker_retired = A.worker_retired,
  resources_updated = A.resources,
  grace = function() end,
}

function U.apply(prefix, id, e, payloads)
  A.by_type[e.type](prefix, id, e, payloads)
  redis.call('HSET', prefix .. 'meta', 'n', e.n, 'time', e.time)
end
