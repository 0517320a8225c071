-- Repairs the queue where it is not what the rollouts say. Our own commands keep the two in step, so this takes a hand
-- from outside: entries trimmed or deleted, a consumer deleted with what it held, an entry acknowledged by hand.
C.REPAIR_LIMIT = 50 -- rollouts of each kind looked at in one call: some 2 ms when all are put back

-- Puts a queued rollout back on the queue under a new event. It uses up no delivery: nobody is known to have had it.
function C.put_back(ctx, rollout, reason)
  U.emit(ctx, 'redelivered', { 'rollout', rollout.id, 'reason', reason, 'unqueue', rollout.entry, 'requeue', '1' })
end

-- The oldest entries up to the last one that the group has handed out, if there are more than it has in hands. Entries
-- leave the stream when they are begun, so in a sound queue the two numbers are equal, and small.
function C.forgotten(tasks)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', tasks)) do
    local group = U.map(flat)
    if group.name == 'runners' then
      local found = redis.call('XRANGE', tasks, '-', group['last-delivered-id'], 'COUNT', C.REPAIR_LIMIT)
      return #found > group.pending and found or {}
    end
  end
  return {}
end

-- Entries that were handed out and are in nobody's hands would never be handed out again. So the group begins anew; what
-- is in hands goes to a second reader, and is begun once. Only a new entry wakes readers: one goes back under a new event.
-- Returns how many.
function C.repair_forgotten(ctx, tasks)
  local found, count = C.forgotten(tasks), 0
  if #found > 0 then
    redis.call('XGROUP', 'SETID', tasks, 'runners', '0')
  end
  for at = #found, 1, -1 do
    if count == 0 then
      count = C.give_back(ctx, found[at][1], U.map(found[at][2]).rollout, 'reader_forgotten')
    end
  end
  return count
end

-- The next rollouts of a queued status in order of creation, after those of the last look, and whether there may be more.
function C.next_waiting(ctx, status)
  local watch, place = ctx.prefix .. 'live:watch', 'repair:' .. status
  local after = redis.call('HGET', watch, place)
  local found = redis.call('ZRANGEBYSCORE', ctx.prefix .. 'index:status:' .. status, after and '(' .. after or '-inf', '+inf',
    'WITHSCORES', 'LIMIT', 0, C.REPAIR_LIMIT)
  redis.call('HSET', watch, place, found[#found] or after or '0')
  return found, #found == 2 * C.REPAIR_LIMIT
end

-- Rollouts that wait for an entry that is not there. Returns how many were put back, and whether to look on at once.
function C.repair_missing(ctx, tasks)
  local count, unfinished = 0, false
  for status in pairs(S.queued) do
    local found, more = C.next_waiting(ctx, status)
    for at = 1, #found, 2 do
      local rollout = S.rollout(ctx, found[at])
      if rollout and #redis.call('XRANGE', tasks, rollout.entry, rollout.entry) == 0 then
        C.put_back(ctx, rollout, 'entry_missing')
        count = count + 1
      end
    end
    unfinished = unfinished or more
  end
  return count, unfinished
end

-- Returns how many rollouts were put back, and whether there may be more. Where nothing is wrong this is a few commands
-- that each take the same time whatever the length of the queue. `watch` has the places where an earlier look left off.
function C.repair(ctx, watch)
  local tasks, waiting, looking = ctx.prefix .. 'tasks', 0, watch['repair:queuing'] or watch['repair:requeuing']
  local count = redis.call('XLEN', tasks) > 0 and C.repair_forgotten(ctx, tasks) or 0
  for status in pairs(S.queued) do
    waiting = waiting + redis.call('ZCARD', ctx.prefix .. 'index:status:' .. status)
  end
  local missing, unfinished = 0, false
  if waiting > 0 and redis.call('XLEN', tasks) < waiting then
    missing, unfinished = C.repair_missing(ctx, tasks)
    looking = true
  end
  if looking and not unfinished then
    redis.call('HDEL', ctx.prefix .. 'live:watch', 'repair:queuing', 'repair:requeuing') -- the next look begins anew
  end
  return count + missing, unfinished
end
