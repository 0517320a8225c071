-- name: append_spans
-- does: stores new spans of one attempt, drops those it already has, and wakes the attempt (a span is a heartbeat). The hot path: it reads three fields of the attempt, and the rest only to wake it.
-- flags:
-- keys: meta
-- args: clock, rollout, attempt, token of this request, then per span: span id, sequence number ('' = take the next), start_us, end_us ('' = none), sums ('' or 'calls,prompt,completion,incomplete,rewards,reward'), payload (the token, '|', the opaque bytes)
-- result: ok, then per span its sequence number, or false for one that was there before; or not_found_rollout, not_found_attempt
-- events: attempt_running, spans
C.SPAN_WIDTH = 6

-- A stored span is its event id, '|', its sequence number, '|', its payload, which begins with the token of the request
-- that brought it.
-- Returns the sequence number that a repeat of the same request should see again, or false.
function C.stored_by(value, token)
  local sequence, by = string.match(value, '^[^|]*|(%d+)|([^|]*)|')
  return by == token and sequence
end

-- Wakes an attempt that is preparing or was given up, and with it the rollout that waits for it.
function C.wake(ctx, rollout, attempt)
  local fields = { 'rollout', rollout.id, 'attempt', attempt.id, 'status', 'running' }
  S.put_follow(fields, S.follow(ctx, rollout, attempt, 'running'))
  U.emit(ctx, 'attempt_running', fields)
  attempt.status = 'running'
end

-- Whether a span wakes an attempt of this status. A timed-out or finished one stays what it is.
C.WAKES = { preparing = true, unresponsive = true }

function C.append_spans(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local attempt_key = ctx.prefix .. 'attempt:' .. args[2] .. ':' .. args[3]
  local status = redis.call('HGET', attempt_key, 'status')
  if not status then
    local known = redis.call('EXISTS', ctx.prefix .. 'rollout:' .. args[2]) == 1
    return { known and 'not_found_attempt' or 'not_found_rollout' }
  end
  local collect = #args == 4 + C.SPAN_WIDTH and C.collect_one or C.collect
  local reply, fields, payloads = collect(ctx, args)
  if not fields then
    return reply
  end
  if C.WAKES[status] then
    local rollout, attempt = S.rollout(ctx, args[2]), S.attempt(ctx, args[2], args[3])
    C.wake(ctx, rollout, attempt)
    attempt.heartbeat = ctx.time
    L.settle(ctx, rollout, attempt)
  end
  U.emit(ctx, 'spans', fields, payloads)
  return reply
end
