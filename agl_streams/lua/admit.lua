-- name: admit
-- does: admits a model call of an attempt and hands out sequence numbers, in one step.
-- flags:
-- keys: meta
-- args: clock, rollout, attempt, how many, check ('1' = refuse a missing, ended or superseded attempt; '' = hand out to anybody, as get_next_span_sequence_id of the reference)
-- result: ok, first number; or not_found_rollout, not_found_attempt, ended, superseded
-- events:
function C.refuse_call(ctx, rollout, attempt_id)
  local attempt = rollout and S.attempt(ctx, rollout.id, attempt_id)
  if not attempt then
    return rollout and 'not_found_attempt' or 'not_found_rollout'
  end
  if S.ended[attempt.status] or S.finished[rollout.status] then
    return 'ended'
  end
  return rollout.latest ~= attempt_id and 'superseded' or nil
end

function C.admit(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  refusal = args[5] == '1' and C.refuse_call(ctx, S.rollout(ctx, args[2]), args[3])
  if refusal then
    return { refusal }
  end
  return { 'ok', U.int(L.take_sequences(ctx, args[2], tonumber(args[4]))) }
end
