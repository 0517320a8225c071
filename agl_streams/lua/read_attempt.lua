-- name: read_attempt
-- does: one attempt by id.
-- flags: no-writes
-- keys: meta
-- args: rollout, attempt
-- result: ok, view of the attempt; or not_found_rollout, not_found_attempt
-- events:
function C.read_attempt(keys, args)
  local prefix = string.sub(keys[1], 1, -5)
  if redis.call('EXISTS', prefix .. 'rollout:' .. args[1]) == 0 then
    return { 'not_found_rollout' }
  end
  if redis.call('EXISTS', prefix .. 'attempt:' .. args[1] .. ':' .. args[2]) == 0 then
    return { 'not_found_attempt' }
  end
  return { 'ok', S.attempt_view(prefix, args[1], args[2]) }
end
