-- name: start_attempt
-- does: opens one more attempt of any rollout, whatever its status; a finished one is open again.
-- flags:
-- keys: meta
-- args: clock, worker, lease_us, new attempt id, rollout
-- result: ok, view of the rollout; or not_found_rollout
-- events: attempt_started
function C.start_attempt(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local rollout = S.rollout(ctx, args[5])
  if not rollout then
    return { 'not_found_rollout' }
  end
  if not S.attempt(ctx, rollout.id, args[4]) then
    rollout.dead = S.dead(ctx, rollout.id)
    C.open_attempt(ctx, rollout, args[4], args[2], args[3], nil)
  end
  return { 'ok', S.view(ctx.prefix, rollout.id, args[4]) }
end
