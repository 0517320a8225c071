-- Views: what commands and reads reply, and the names of the bodies that travel beside events.

-- A rollout with its newest attempt, or with the one named: the reply of claim, begin and the reads, see projections.py
-- `decode_rollout`. A repeat of a claim must show the attempt that it opened, not one that has followed.
function S.view(prefix, rollout_id, attempt_id)
  local rollout = redis.call('HMGET', prefix .. 'rollout:' .. rollout_id, unpack(ROLLOUT))
  if not rollout[1] then
    return false
  end
  local body = redis.call('GET', prefix .. S.body_name(rollout_id, rollout[ROLLOUT_AT.body]))
  local shown = attempt_id or rollout[ROLLOUT_AT.latest]
  return { rollout_id, rollout, body, shown and S.attempt_view(prefix, rollout_id, shown) or false }
end

function S.attempt_view(prefix, rollout_id, attempt_id)
  local attempt = redis.call('HMGET', prefix .. 'attempt:' .. rollout_id .. ':' .. attempt_id, unpack(ATTEMPT))
  local version = attempt[ATTEMPT_AT.body]
  local body = version and redis.call('GET', prefix .. S.attempt_body_name(rollout_id, attempt_id, version))
  return { attempt_id, attempt, body or false }
end

-- Bodies are immutable, one key per version, so that a rebuild and a view of the past find what was true then.
-- Names without the shard's prefix, as they travel beside an event.
function S.body_name(rollout_id, version)
  return 'body:' .. rollout_id .. ':' .. version
end

function S.attempt_body_name(rollout_id, attempt_id, version)
  return 'abody:' .. rollout_id .. ':' .. attempt_id .. ':' .. version
end
