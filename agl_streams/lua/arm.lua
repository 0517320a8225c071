-- name: arm
-- does: after a rebuild, gives open attempts among the rollouts named a full lease and a deadline; live state is not in the log.
-- flags: allow-oom
-- keys: meta
-- args: clock, then rollout ids
-- result: ok, attempts armed
-- events:
function C.arm_attempt(ctx, rollout, attempt)
  if not attempt or not L.watched(rollout, attempt) then
    return false
  end
  if attempt.lease then
    L.lease(ctx, rollout.id, attempt.id, attempt.lease)
  end
  L.arm(ctx, rollout, attempt)
  return true
end

function C.arm(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local armed = 0
  for at = 2, #args do
    local rollout = S.rollout(ctx, args[at])
    for seq = 1, rollout and tonumber(rollout.attempts or '0') or 0 do
      local id = redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout.id, 'a:' .. U.int(seq))
      armed = armed + (C.arm_attempt(ctx, rollout, S.attempt(ctx, rollout.id, id)) and 1 or 0)
    end
  end
  return { 'ok', armed }
end
