-- Entries of the queue and of the streams of finished and dead rollouts carry the id of their event.

-- Adds an entry. This must not fail: its event is in the log already. An entry with a later id, which only a hand from
-- outside can have added, refuses all new ones. Then the queue begins anew, and expire puts back what waits; elsewhere the
-- entry takes the next id that there is. Returns the id that it has.
function A.push(prefix, stream, id, ...)
  local key = prefix .. stream
  local reply = redis.pcall('XADD', key, id, ...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  end
  if stream == 'tasks' then
    redis.call('UNLINK', key)
    redis.call('XGROUP', 'CREATE', key, 'runners', '0', 'MKSTREAM')
    return redis.call('XADD', key, id, ...)
  end
  return redis.call('XADD', key, '*', ...)
end

-- A new status, and with it the entries in the streams of finished and dead rollouts.
function A.move(prefix, id, e, old, set, del)
  U.put(set, 'status', e.to)
  A.set_status(prefix, e.rollout, old.n, old.status, e.to)
  if not S.finished[e.to] then
    del[#del + 1] = 'end'
    del[#del + 1] = 'reason'
    return
  end
  U.put(set, 'end', e.time)
  U.put(set, 'reason', e.reason)
  del[#del + 1] = not e.reason and 'reason' or nil
  if not S.finished[old.status] then
    A.push(prefix, 'finished', id, 'rollout', e.rollout, 'status', e.to)
  end
  if e.dead then
    U.put(set, 'dead', A.push(prefix, 'dead', id, 'rollout', e.rollout, 'reason', e.reason))
  end
end
