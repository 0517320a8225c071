-- name: release
-- does: gives entries back that a reader was handed and cannot begin: each goes to the end of the queue under a new event, which wakes another runner. This uses up no delivery.
-- flags: allow-oom
-- keys: meta
-- args: clock, then per entry: entry id, rollout
-- result: ok, number given back
-- events: redelivered
function C.release(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local count = 0
  for at = 2, #args, 2 do
    local rollout = S.rollout(ctx, args[at + 1])
    if rollout and rollout.entry == args[at] and S.queued[rollout.status] then
      U.emit(ctx, 'redelivered', { 'rollout', rollout.id, 'reason', 'released', 'unqueue', args[at], 'requeue', '1' })
      count = count + 1
    else
      C.drop_entry(ctx, args[at])
    end
  end
  return { 'ok', count }
end
