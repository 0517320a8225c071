-- name: drop_dead
-- does: takes a rollout that was given up off the stream of dead ones; it stays failed.
-- flags: allow-oom
-- keys: meta
-- args: clock, rollout, token of this request
-- result: ok, view of the rollout; or not_found_rollout; or not_dead
-- events: dead_dropped
function C.drop_dead(keys, args)
  local ctx, rollout, entry = S.open_dead(keys, args[1], args[2], args[3])
  if not ctx then
    return { rollout }
  end
  if rollout then
    U.emit(ctx, 'dead_dropped', { 'rollout', rollout.id, 'undead', entry })
    U.remember(ctx, args[3], '1')
  end
  return { 'ok', S.view(ctx.prefix, args[2]) }
end
