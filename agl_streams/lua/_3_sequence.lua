-- Span sequence numbers: handed out per rollout, never twice. Live state, see _3_live.lua.

-- The highest sequence number issued or seen in a rollout. Numbers that were issued before a rebuild but never seen are
-- skipped over by SEQUENCE_GAP, so none is ever handed out twice.
function L.sequence(ctx, rollout_id)
  local issued = redis.call('HGET', ctx.prefix .. 'live:sequence', rollout_id)
  if issued then
    return tonumber(issued)
  end
  local seen = tonumber(redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout_id, 'sequence') or '0')
  return seen > 0 and seen + SEQUENCE_GAP or 0
end

function L.set_sequence(ctx, rollout_id, number)
  redis.call('HSET', ctx.prefix .. 'live:sequence', rollout_id, U.int(number))
end

-- The first of `count` new numbers. One call in the usual case.
function L.take_sequences(ctx, rollout_id, count)
  local last = redis.call('HINCRBY', ctx.prefix .. 'live:sequence', rollout_id, count)
  if last == count then
    local seen = tonumber(redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout_id, 'sequence') or '0')
    if seen > 0 then
      last = seen + SEQUENCE_GAP + count
      L.set_sequence(ctx, rollout_id, last)
    end
  end
  return last - count + 1
end

-- An explicit number raises the counter, so that no later caller is handed it again.
function L.raise_sequence(ctx, rollout_id, number)
  if number > L.sequence(ctx, rollout_id) then
    L.set_sequence(ctx, rollout_id, number)
  end
end
