-- What a command reads before it decides: projections, status sets, and the rule from attempt to rollout.
-- Rules: the state tables of the documentation (docs/concepts.md), which follow Agent-lightning v0.3.
local S = {}

S.finished = { succeeded = true, failed = true, cancelled = true }
S.queued = { queuing = true, requeuing = true }
S.open = { preparing = true, running = true }
S.ended = { succeeded = true, failed = true, timeout = true }

-- The projection of a rollout as a map, or nil.
function S.rollout(ctx, id)
  local map = U.read(ctx.prefix .. 'rollout:' .. id, ROLLOUT_STATE)
  if not map.status then
    return nil
  end
  map.id = id
  return map
end

-- The projection of an attempt as a map, or nil.
function S.attempt(ctx, rollout, id)
  local map = U.read(ctx.prefix .. 'attempt:' .. rollout .. ':' .. id, ATTEMPT)
  if not map.status then
    return nil
  end
  map.id = id
  return map
end

-- What the rollout becomes when its newest attempt takes `status`: a map of event fields, empty when nothing changes.
-- `max_deliveries` bounds how often a rollout may lose its runner before it is given up.
function S.follow(ctx, rollout, attempt, status, reason, max_deliveries)
  if rollout.latest ~= attempt.id or S.finished[rollout.status] then
    return {}
  end
  local lost = tonumber(rollout.lost or '0')
  -- An attempt that was given up as lost and came back no longer counts as lost.
  local found = attempt.reason == 'worker_lost' and reason ~= 'worker_lost' and lost > 0
  lost = found and lost - 1 or lost
  if status == 'preparing' or status == 'running' or status == 'succeeded' then
    return { to = status, unqueue = rollout.entry, lost = found and U.int(lost) or nil }
  end
  -- One that waits already, because it was queued by hand or by an earlier end of this attempt, keeps its place.
  local requeue = not rollout.entry and '1'
  if reason == 'worker_lost' then
    if tonumber(rollout.deliveries) < max_deliveries then
      return { to = 'requeuing', requeue = requeue, lost = U.int(lost + 1) }
    end
    return { to = 'failed', dead = '1', unqueue = rollout.entry, lost = U.int(lost + 1) }
  end
  local retry = string.find(',' .. (rollout.retry or '') .. ',', ',' .. status .. ',', 1, true)
  if retry and tonumber(attempt.seq) - lost < tonumber(rollout.max) then
    return { to = 'requeuing', requeue = requeue, deliveries = '0', lost = U.int(lost) }
  end
  return { to = 'failed', unqueue = rollout.entry, lost = U.int(lost) }
end

-- The fields of `follow` in a fixed order, for an event.
function S.put_follow(fields, follow)
  U.put(fields, 'to', follow.to)
  U.put(fields, 'unqueue', follow.unqueue)
  U.put(fields, 'requeue', follow.requeue)
  U.put(fields, 'deliveries', follow.deliveries)
  U.put(fields, 'lost', follow.lost)
  U.put(fields, 'dead', follow.dead)
end
