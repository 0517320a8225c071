-- name: append_spans
-- does: stores new spans, drops those that their attempt already has, and wakes the attempt (a span is a heartbeat). One call carries groups of several callers, each of one attempt. The hot path: of the attempt it reads one field, and the rest only to wake it.
-- flags:
-- keys: meta
-- args: clock, then per group: rollout, attempt, number of spans, then per span: span id, sequence number ('' = take the next), start_us, end_us ('' = none), sums ('' or 'calls,prompt,completion,incomplete,rewards,reward'), payload (its number if it has one, '|', the token of its request, '|', the opaque bytes)
-- result: ok, then per group: ok and per span its sequence number, or false for one that was there before; or not_found_rollout, not_found_attempt
-- events: attempt_running, spans
C.SPAN_WIDTH = 6

-- A stored span is its sequence number, '|', the token of the request that brought it, '|', the opaque bytes. One that
-- comes with its number is stored as it came: copying a kilobyte twice in Lua takes as long as storing it.
-- Returns the sequence number that a repeat of the same request should see again, or false.
function C.stored_by(value, payload)
  local sequence, by = string.match(value, '^(%d+)|([^|]*)|')
  return by == string.match(payload, '^%d*|([^|]*)|') and sequence
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

-- Stores one group; returns its reply.
function C.append_group(ctx, args, group)
  local status = redis.call('HGET', ctx.prefix .. 'attempt:' .. group.rollout .. ':' .. group.attempt, 'status')
  if not status then
    local known = redis.call('EXISTS', ctx.prefix .. 'rollout:' .. group.rollout) == 1
    return { known and 'not_found_attempt' or 'not_found_rollout' }
  end
  local collect = group.first + C.SPAN_WIDTH > group.last and C.collect_one or C.collect
  local reply, fields, payloads = collect(ctx, args, group)
  if not fields then
    return reply
  end
  if C.WAKES[status] then
    local rollout, attempt = S.rollout(ctx, group.rollout), S.attempt(ctx, group.rollout, group.attempt)
    C.wake(ctx, rollout, attempt)
    attempt.heartbeat = ctx.time
    L.settle(ctx, rollout, attempt)
  end
  U.emit(ctx, 'spans', fields, payloads)
  return reply
end

function C.append_spans(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local reply, at = { 'ok' }, 2
  while at <= #args do
    local last = at + 2 + args[at + 2] * C.SPAN_WIDTH
    local group = { rollout = args[at], attempt = args[at + 1], first = at + 3, last = last }
    reply[#reply + 1] = C.append_group(ctx, args, group)
    at = last + 1
  end
  return reply
end
