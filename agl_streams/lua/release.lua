-- name: release
-- does: gives entries back that a reader was handed and cannot begin: each goes to the end of the queue under a new event, which wakes another runner. This uses up no delivery.
-- flags: allow-oom
-- keys: meta
-- args: clock, then per entry: entry id, rollout
-- result: ok, number given back
-- events: redelivered

-- Returns 1 when the entry's rollout still waited for it, 0 when it was void.
function C.give_back(ctx, entry, rollout_id, reason)
  local rollout = rollout_id and S.rollout(ctx, rollout_id)
  if not rollout or rollout.entry ~= entry or not S.queued[rollout.status] then
    C.drop_entry(ctx, entry)
    return 0
  end
  C.put_back(ctx, rollout, reason)
  return 1
end

function C.release(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local count = 0
  for at = 2, #args, 2 do
    count = count + C.give_back(ctx, args[at], args[at + 1], 'released')
  end
  return { 'ok', count }
end
