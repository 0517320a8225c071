-- name: renew
-- does: extends the leases of attempts that a live runner holds; an attempt given up as lost, still the newest and not yet taken by another, comes back.
-- flags: allow-oom
-- keys: meta
-- args: clock, then per attempt: rollout, attempt, lease_us
-- result: ok, then per attempt renewed, superseded, ended or not_found_attempt
-- events: attempt_running
function C.renew_one(ctx, rollout_id, attempt_id, lease_us)
  local rollout = S.rollout(ctx, rollout_id)
  local attempt = rollout and S.attempt(ctx, rollout_id, attempt_id)
  if not attempt then
    return 'not_found_attempt'
  end
  if rollout.latest ~= attempt_id then
    return 'superseded'
  end
  local lost = attempt.status == 'unresponsive' and attempt.reason == 'worker_lost'
  if S.finished[rollout.status] or not (S.open[attempt.status] or lost) then
    return 'ended'
  end
  if lost then
    C.wake(ctx, rollout, attempt)
  end
  L.lease(ctx, rollout_id, attempt_id, lease_us)
  -- The deadline is left as it is where it comes early enough: expire finds the true one.
  local due = redis.call('ZSCORE', ctx.prefix .. 'live:deadlines', L.member(rollout_id, attempt_id))
  if lost or not due or tonumber(due) > ctx.now + tonumber(lease_us) then
    L.arm(ctx, rollout, attempt)
  end
  return 'renewed'
end

function C.renew(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local reply = { 'ok' }
  for at = 2, #args, 3 do
    reply[#reply + 1] = C.renew_one(ctx, args[at], args[at + 1], args[at + 2])
  end
  return reply
end
