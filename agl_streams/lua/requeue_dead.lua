-- name: requeue_dead
-- does: puts a rollout that was given up on the queue again, as if new: its deliveries count from 0, and no attempt so far counts as one of its max_attempts.
-- flags:
-- keys: meta
-- args: clock, rollout, token of this request
-- result: ok, view of the rollout; or not_found_rollout; or not_dead
-- events: dead_requeued
function C.requeue_dead(keys, args)
  local ctx, rollout, entry = S.open_dead(keys, args[1], args[2], args[3])
  if not ctx then
    return { rollout }
  end
  if rollout then
    U.emit(ctx, 'dead_requeued', { 'rollout', rollout.id, 'undead', entry, 'to', 'requeuing', 'requeue', '1',
      'deliveries', '0', 'lost', rollout.attempts or '0' })
    C.settle_deadlines(ctx, rollout)
    U.remember(ctx, args[3], '1')
  end
  return { 'ok', S.view(ctx.prefix, args[2]) }
end
