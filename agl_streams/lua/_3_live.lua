-- Live state: deadlines, leases, sequence numbers. It may be lost with a rebuild, is never by itself the reason for a
-- status, and starts again with a full lease. One member per attempt: rollout ids hold no colon.
local L = {}

function L.member(rollout_id, attempt_id)
  return rollout_id .. ':' .. attempt_id
end

-- When the lease of an attempt runs out, in microseconds, or nil. A span renews it by being a heartbeat, so that storing
-- one costs no further write. A heartbeat time that a user set in the future proves nothing.
function L.lease_until(ctx, rollout, attempt)
  local renewed = tonumber(redis.call('HGET', ctx.prefix .. 'live:leases', L.member(rollout.id, attempt.id)) or '')
  if attempt.lease and attempt.heartbeat then
    local seen = math.min(tonumber(attempt.heartbeat), ctx.now)
    renewed = math.max(renewed or 0, seen + tonumber(attempt.lease))
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

-- Forgets an attempt that has ended.
function L.forget(ctx, rollout_id, attempt_id)
  local member = L.member(rollout_id, attempt_id)
  redis.call('ZREM', ctx.prefix .. 'live:deadlines', member)
  redis.call('HDEL', ctx.prefix .. 'live:leases', member)
  redis.call('DEL', ctx.prefix .. 'live:claim:' .. attempt_id)
end

-- The highest sequence number issued or seen in a rollout. Numbers that were issued before a rebuild but never seen are
-- skipped over by SEQUENCE_GAP, so none is ever handed out twice.
function L.sequence(ctx, rollout_id)
  local issued = redis.call('HGET', ctx.prefix .. 'live:sequence', rollout_id)
  if issued then
    return tonumber(issued)
  end
  local seen = tonumber(redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout_id, 'sequence') or '0')
  return seen > 0 and seen + SEQUENCE_GAP or 0
end

function L.set_sequence(ctx, rollout_id, number)
  redis.call('HSET', ctx.prefix .. 'live:sequence', rollout_id, U.int(number))
end

-- The first of `count` new numbers. One call in the usual case.
function L.take_sequences(ctx, rollout_id, count)
  local last = redis.call('HINCRBY', ctx.prefix .. 'live:sequence', rollout_id, count)
  if last == count then
    local seen = tonumber(redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout_id, 'sequence') or '0')
    if seen > 0 then
      last = seen + SEQUENCE_GAP + count
      L.set_sequence(ctx, rollout_id, last)
    end
  end
  return last - count + 1
end

-- An explicit number raises the counter, so that no later caller is handed it again.
function L.raise_sequence(ctx, rollout_id, number)
  if number > L.sequence(ctx, rollout_id) then
    L.set_sequence(ctx, rollout_id, number)
  end
end
