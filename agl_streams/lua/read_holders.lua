-- name: read_holders
-- does: which workers hold the newest attempts of rollouts, where those are open.
-- flags: no-writes
-- keys: meta
-- args: rollout ids
-- result: ok, then per rollout the worker (escaped), or false
-- events:
function C.read_holders(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  for _, id in ipairs(args) do
    local latest = redis.call('HGET', prefix .. 'rollout:' .. id, 'latest')
    local found = latest and U.read(prefix .. 'attempt:' .. id .. ':' .. latest, { 'status', 'worker' }) or {}
    reply[#reply + 1] = S.open[found.status] and found.worker or false
  end
  return reply
end
