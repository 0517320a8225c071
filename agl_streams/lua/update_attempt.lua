-- name: update_attempt
-- does: records what a runner or an operator says of an attempt; the newest attempt of an unfinished rollout moves the rollout.
-- flags: allow-oom
-- keys: meta
-- args: clock, rollout, attempt (or 'latest'), status, worker, heartbeat_us, reason ('' = unchanged), expected body version, body ('' = unchanged), max_deliveries, token of this request
-- result: ok, view of the attempt; or not_found_rollout, not_found_attempt, changed (the body was replaced meanwhile: read again)
-- events: attempt_running, attempt_ended, attempt_lost, attempt_updated
C.ATTEMPT_EVENT = {
  preparing = 'attempt_updated', running = 'attempt_running',
  succeeded = 'attempt_ended', failed = 'attempt_ended',
  timeout = 'attempt_lost', unresponsive = 'attempt_lost',
}

-- The event's fields and payload, or nil when the call says nothing new: an equal report on an attempt is a repeat.
function C.attempt_change(ctx, rollout, attempt, args)
  local fields, payloads = { 'rollout', rollout.id, 'attempt', attempt.id }, nil
  local status = args[4] ~= '' and args[4] ~= attempt.status and args[4]
  U.put(fields, 'status', status)
  U.put(fields, 'worker', args[5] ~= '' and args[5] ~= attempt.worker and args[5])
  U.put(fields, 'heartbeat', args[6] ~= '' and args[6] ~= attempt.heartbeat and args[6])
  U.put(fields, 'reason', status and args[7] ~= '' and args[7])
  if args[9] ~= '' then
    local version = U.int(tonumber(attempt.body or '0') + 1)
    U.put(fields, 'body', version)
    payloads = { S.attempt_body_name(rollout.id, attempt.id, version), args[9] }
  end
  if #fields == 4 then
    return nil
  end
  if status then
    S.put_follow(fields, S.follow(ctx, rollout, attempt, status, args[7], tonumber(args[10])))
  end
  return fields, payloads, status
end

-- After an event: lease and deadline of an attempt as its state asks for them.
function C.settle_deadline(ctx, rollout_id, attempt_id)
  L.settle(ctx, S.rollout(ctx, rollout_id), S.attempt(ctx, rollout_id, attempt_id))
end

function C.update_attempt(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local rollout = S.rollout(ctx, args[2])
  local attempt_id = args[3] == 'latest' and rollout and rollout.latest or args[3]
  local attempt = rollout and S.attempt(ctx, rollout.id, attempt_id)
  if not attempt then
    return { rollout and 'not_found_attempt' or 'not_found_rollout' }
  end
  if not U.recall(ctx, args[11]) then
    if args[9] ~= '' and args[8] ~= (attempt.body or '0') then
      return { 'changed' }
    end
    local fields, payloads, status = C.attempt_change(ctx, rollout, attempt, args)
    if fields then
      U.emit(ctx, C.ATTEMPT_EVENT[status or 'preparing'], fields, payloads)
      C.settle_deadline(ctx, rollout.id, attempt_id)
    end
    U.remember(ctx, args[11], '1')
  end
  return { 'ok', S.attempt_view(ctx.prefix, rollout.id, attempt_id) }
end
