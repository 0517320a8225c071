-- name: append_spans
-- does: stores new spans of one attempt, drops those it already has, and wakes the attempt (a span is a heartbeat).
-- flags:
-- keys: meta
-- args: clock, rollout, attempt, token of this request, then per span: span id, sequence number ('' = take the next), start_us, end_us ('' = none), sums ('' or 'calls,prompt,completion,incomplete,rewards,reward'), payload
-- result: ok, then per span its sequence number, or false for one that was there before; or not_found_rollout, not_found_attempt
-- events: attempt_running, spans
C.SPAN_WIDTH = 6

-- A stored span is its event id, '|', its sequence number, '|', the token of the request that brought it, '|', its payload.
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

-- Adds one span's sums 'calls,prompt,completion,incomplete,rewards,reward' to the batch's.
function C.add_sums(total, sums)
  if sums == '' then
    return
  end
  local at = 1
  for value in string.gmatch(sums, '[^,]+') do
    local name = SUMS[at]
    if name == 'reward' then
      total.reward = value
    else
      total[name] = (total[name] or 0) + tonumber(value)
    end
    at = at + 1
  end
end

function C.batch_fields(rollout, attempt, ids, total)
  local fields = { 'rollout', rollout, 'attempt', attempt, 'count', U.int(#ids), 'ids', table.concat(ids, '\n') }
  U.put(fields, 'sequence', U.int(total.sequence))
  U.put(fields, 'first', total.first and U.int(total.first))
  U.put(fields, 'last', total.last and U.int(total.last))
  for _, name in ipairs(SUMS) do
    local value = total[name]
    U.put(fields, name, value and value ~= 0 and (name == 'reward' and value or U.int(value)))
  end
  return fields
end

function C.append_spans(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local rollout = S.rollout(ctx, args[2])
  local attempt = rollout and S.attempt(ctx, args[2], args[3])
  if not attempt then
    return { rollout and 'not_found_attempt' or 'not_found_rollout' }
  end
  local reply, ids, payloads, total = C.collect(ctx, rollout, attempt, args)
  if #ids == 0 then
    return reply
  end
  local woken = attempt.status == 'preparing' or attempt.status == 'unresponsive'
  if woken then
    C.wake(ctx, rollout, attempt)
  end
  U.emit(ctx, 'spans', C.batch_fields(args[2], args[3], ids, total), payloads)
  if attempt.lease and S.open[attempt.status] then
    L.lease(ctx, args[2], args[3], attempt.lease)
  end
  if woken then
    attempt.heartbeat = U.int(ctx.now)
    L.arm(ctx, rollout, attempt)
  end
  return reply
end
