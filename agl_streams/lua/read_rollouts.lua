-- name: read_rollouts
-- does: rollouts by id, each with its newest attempt.
-- flags: no-writes
-- keys: meta
-- args: rollout ids
-- result: ok, then per id its view, or false
-- events:
function C.read_rollouts(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  for _, id in ipairs(args) do
    reply[#reply + 1] = S.view(prefix, id)
  end
  return reply
end
