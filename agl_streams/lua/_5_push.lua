-- Entries of the queue and of the streams of finished and dead rollouts carry the id of their event.

-- Adds an entry. This must not fail: its event is in the log already. An entry with a later id, which only a hand from
-- outside can have added, refuses all new ones. Then the queue begins anew, and expire puts back what waits; elsewhere the
-- entry takes the next id that there is.
function A.push(prefix, stream, id, ...)
  local key = prefix .. stream
  local reply = redis.pcall('XADD', key, id, ...)
  if type(reply) ~= 'table' or not reply.err then
    return
  end
  if stream == 'tasks' then
    redis.call('UNLINK', key)
    redis.call('XGROUP', 'CREATE', key, 'runners', '0', 'MKSTREAM')
    redis.call('XADD', key, id, ...)
  else
    redis.call('XADD', key, '*', ...)
  end
end
