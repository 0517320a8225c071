-- name: cancel
-- does: ends a rollout on purpose: its newest open attempt fails with the reason, entry and deadline are settled, in one step.
-- flags: allow-oom
-- keys: meta
-- args: clock, rollout, reason, token of this request
-- result: ok, view of the rollout; or not_found_rollout
-- events: attempt_ended, rollout_updated
function C.cancel(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local rollout = S.rollout(ctx, args[2])
  if not rollout then
    return { 'not_found_rollout' }
  end
  if not U.recall(ctx, args[4]) and not S.finished[rollout.status] then
    local attempt = rollout.latest and S.attempt(ctx, rollout.id, rollout.latest)
    local open = attempt and (S.open[attempt.status] or attempt.status == 'unresponsive')
    local fields = { 'rollout', rollout.id }
    U.put(fields, 'attempt', open and attempt.id)
    U.put(fields, 'status', open and 'failed')
    U.put(fields, 'reason', args[3])
    U.put(fields, 'to', 'cancelled')
    U.put(fields, 'unqueue', rollout.entry)
    U.emit(ctx, open and 'attempt_ended' or 'rollout_updated', fields)
    if open then
      L.forget(ctx, rollout.id, attempt.id)
    end
  end
  U.remember(ctx, args[4], '1')
  return { 'ok', S.view(ctx.prefix, rollout.id) }
end
