-- name: read_statuses
-- does: only the statuses of rollouts: what waiting looks at.
-- flags: no-writes
-- keys: meta
-- args: rollout ids
-- result: ok, then per id its status, or false
-- events:
function C.read_statuses(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  for _, id in ipairs(args) do
    reply[#reply + 1] = redis.call('HGET', prefix .. 'rollout:' .. id, 'status')
  end
  return reply
end
