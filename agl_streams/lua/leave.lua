-- name: leave
-- does: gives back what a reader was handed and has not begun, then removes it from the group, in one step: removing a consumer that has entries pending would lose them without a trace.
-- flags: allow-oom
-- keys: meta
-- args: clock, worker (the consumer)
-- result: ok, number given back, number looked at (LEAVE_LIMIT: call again)
-- events: redelivered
function C.leave(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local tasks, count = ctx.prefix .. 'tasks', 0
  local pending = U.with_group(tasks, 'runners', '0', 'XPENDING', tasks, 'runners', '-', '+', LEAVE_LIMIT, args[2])
  for _, entry in ipairs(pending) do
    local found = redis.call('XRANGE', tasks, entry[1], entry[1])
    count = count + C.give_back(ctx, entry[1], found[1] and U.map(found[1][2]).rollout, 'released')
  end
  if #pending < LEAVE_LIMIT then
    redis.call('XGROUP', 'DELCONSUMER', tasks, 'runners', args[2])
  end
  return { 'ok', count, #pending }
end
