-- `apply` for attempts and spans.

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
    if S.ended[e.status] then
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

-- Payloads and the heartbeat at once; sums are the aggregator's (fold.lua), because only sums commute.
function A.spans(prefix, id, e, payloads)
  local attempt = e.rollout .. ':' .. e.attempt
  redis.call('HSET', prefix .. 'spans:' .. attempt, unpack(payloads))
  local seen = redis.call('HGET', prefix .. 'attempt:' .. attempt, 'heartbeat')
  if not seen or tonumber(seen) < tonumber(e.time) then
    redis.call('HSET', prefix .. 'attempt:' .. attempt, 'heartbeat', e.time)
  end
end
