-- name: read_attempts
-- does: attempts of one rollout by number.
-- flags: no-writes
-- keys: meta
-- args: rollout, first number, last number
-- result: ok, then the views of the attempts that exist; or not_found_rollout
-- events:
function C.read_attempts(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  local count = redis.call('HMGET', prefix .. 'rollout:' .. args[1], 'status', 'attempts')
  if not count[1] then
    return { 'not_found_rollout' }
  end
  for seq = tonumber(args[2]), math.min(tonumber(args[3]), tonumber(count[2] or '0')) do
    local id = redis.call('HGET', prefix .. 'rollout:' .. args[1], 'a:' .. U.int(seq))
    reply[#reply + 1] = S.attempt_view(prefix, args[1], id)
  end
  return reply
end
