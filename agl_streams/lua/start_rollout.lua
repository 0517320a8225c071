-- name: start_rollout
-- does: makes a rollout outside the queue, with its first attempt open.
-- flags:
-- keys: meta
-- args: clock, worker, lease_us, new attempt id, then the rollout as in enqueue
-- result: ok, view of the rollout
-- events: rollout_started, attempt_started
function C.start_rollout(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local id = args[5]
  local rollout = S.rollout(ctx, id)
  if not rollout then
    local fields, payloads = C.rollout_fields(args, 5)
    U.emit(ctx, 'rollout_started', fields, payloads)
    rollout = S.rollout(ctx, id)
  end
  -- A repeat also ends what an error between the two events left half done.
  if not rollout.latest then
    C.open_attempt(ctx, rollout, args[4], args[2], args[3], nil)
  end
  return { 'ok', S.view(ctx.prefix, id, args[4]) }
end
