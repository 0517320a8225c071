-- Live state: deadlines, leases, sequence numbers. It may be lost with a rebuild, is never by itself the reason for a
-- status, and starts again with a full lease. One member per attempt: rollout ids hold no colon.
local L = {}

function L.member(rollout_id, attempt_id)
  return rollout_id .. ':' .. attempt_id
end

-- When the lease of an attempt runs out, in microseconds, or nil. A span renews it by being a heartbeat, so that storing
-- one costs no further write: by the length that the attempt began with, or by the default where a lease came later. A
-- heartbeat time that a user set in the future proves nothing: it would be a lease for ever.
function L.lease_until(ctx, rollout, attempt, default)
  local renewed = tonumber(redis.call('HGET', ctx.prefix .. 'live:leases', L.member(rollout.id, attempt.id)) or '')
  local seen, length = tonumber(attempt.heartbeat or ''), tonumber(attempt.lease or (renewed and default) or '')
  if length and seen and seen <= ctx.now then
    renewed = math.max(renewed or 0, seen + length)
  end
  return renewed
end

-- When the watchdog must look at an open attempt, in microseconds; nil when nothing limits it.
-- Returns the time and the rule that it comes from. Grace puts off what only silence would prove.
function L.deadline(rollout, attempt, lease_until, grace)
  local best, rule
  local function consider(at, name)
    if at and (not best or at < best) then
      best, rule = at, name
    end
  end
  local start = tonumber(attempt.start)
  if rollout.timeout then
    consider(start + tonumber(rollout.timeout), 'timeout')
  end
  if rollout.unresponsive then
    local seen = tonumber(attempt.heartbeat or attempt.start)
    consider(math.max(seen + tonumber(rollout.unresponsive), grace), 'unresponsive')
  end
  if lease_until then
    consider(math.max(lease_until, grace), 'lease')
  end
  return best, rule
end

function L.grace(ctx)
  return tonumber(redis.call('HGET', ctx.prefix .. 'live:watch', 'grace') or '0')
end

-- Writes the true deadline of an open attempt, or removes it.
function L.arm(ctx, rollout, attempt)
  local member = L.member(rollout.id, attempt.id)
  local at = L.deadline(rollout, attempt, L.lease_until(ctx, rollout, attempt), 0)
  if at then
    redis.call('ZADD', ctx.prefix .. 'live:deadlines', U.int(at), member)
  else
    redis.call('ZREM', ctx.prefix .. 'live:deadlines', member)
  end
end

function L.lease(ctx, rollout_id, attempt_id, lease_us)
  local until_us = U.int(ctx.now + tonumber(lease_us))
  redis.call('HSET', ctx.prefix .. 'live:leases', L.member(rollout_id, attempt_id), until_us)
end

-- Forgets an attempt that has ended. Its claim can be asked for a little longer: a repeat that took another rollout
-- instead would leave that one with nobody.
function L.forget(ctx, rollout_id, attempt_id)
  local member = L.member(rollout_id, attempt_id)
  redis.call('ZREM', ctx.prefix .. 'live:deadlines', member)
  redis.call('HDEL', ctx.prefix .. 'live:leases', member)
  redis.call('EXPIRE', ctx.prefix .. 'live:claim:' .. attempt_id, REQUEST_MEMORY_S)
end

-- Whether the watchdog looks after an attempt: every open one, but the newest of a finished rollout is left to its runner.
function L.watched(rollout, attempt)
  return S.open[attempt.status] and not (S.finished[rollout.status] and rollout.latest == attempt.id)
end

-- A watched attempt has its true deadline, and its lease, a full one where it had lost it; any other has neither.
function L.settle(ctx, rollout, attempt)
  if not L.watched(rollout, attempt) then
    L.forget(ctx, rollout.id, attempt.id)
    return
  end
  local leased = redis.call('HEXISTS', ctx.prefix .. 'live:leases', L.member(rollout.id, attempt.id)) == 1
  if attempt.lease and not leased then
    L.lease(ctx, rollout.id, attempt.id, attempt.lease)
  end
  L.arm(ctx, rollout, attempt)
end
