-- Entries that were handed to a reader which never began them: it died, or its answer was lost.

-- Puts one back under a new event, or gives its rollout up when it was delivered too often. Returns whether it did.
function C.redeliver_one(ctx, entry, max_deliveries)
  local found = redis.call('XRANGE', ctx.prefix .. 'tasks', entry, entry)
  local id = found[1] and U.map(found[1][2]).rollout
  local rollout = id and S.rollout(ctx, id)
  if not rollout or rollout.entry ~= entry then
    C.drop_entry(ctx, entry)
    return false
  end
  local deliveries = tonumber(rollout.deliveries) + 1
  local fields = { 'rollout', id, 'reason', 'never_begun', 'unqueue', entry, 'deliveries', U.int(deliveries) }
  if deliveries < max_deliveries then
    U.put(fields, 'requeue', '1')
    U.emit(ctx, 'redelivered', fields)
  else
    U.put(fields, 'to', 'failed')
    U.put(fields, 'dead', '1')
    U.emit(ctx, 'rollout_dead', fields)
  end
  return true
end

function C.redeliver(ctx, begin_ms, limit, max_deliveries)
  local tasks = ctx.prefix .. 'tasks'
  local idle = U.with_group(tasks, 'runners', '0', 'XPENDING', tasks, 'runners', 'IDLE', begin_ms, '-', '+', limit)
  local returned = 0
  for _, pending in ipairs(idle) do
    returned = returned + (C.redeliver_one(ctx, pending[1], max_deliveries) and 1 or 0)
  end
  return returned, #idle
end
