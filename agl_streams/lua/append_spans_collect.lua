-- The batch of append_spans before anything is written: which spans are new, and what number each gets.

-- The values already stored under the given span ids.
function C.stored_spans(ctx, args)
  local ids = {}
  for at = 5, #args, C.SPAN_WIDTH do
    ids[#ids + 1] = args[at]
  end
  return redis.call('HMGET', ctx.prefix .. 'spans:' .. args[2] .. ':' .. args[3], unpack(ids))
end

-- Widens the batch's time range by one span's start and end.
function C.widen(total, first, last)
  local from, to = tonumber(first), tonumber(last)
  if from and (not total.first or from < total.first) then
    total.first = from
  end
  if to and (not total.last or to > total.last) then
    total.last = to
  end
end

function C.collect(ctx, rollout, attempt, args)
  local stored = C.stored_spans(ctx, args)
  local before = L.sequence(ctx, rollout)
  local reply, ids, payloads, total, highest = { 'ok' }, {}, {}, { sequence = 0 }, before
  for at = 5, #args, C.SPAN_WIDTH do
    local span, given = args[at], tonumber(args[at + 1])
    local known = stored[(at - 5) / C.SPAN_WIDTH + 1]
    if known then
      reply[#reply + 1] = C.stored_by(known, args[4])
    elseif payloads[span] then
      reply[#reply + 1] = false
    else
      local number = given or highest + 1
      ids[#ids + 1] = span
      payloads[span] = '|' .. U.int(number) .. '|' .. args[4] .. '|' .. args[at + 5]
      reply[#reply + 1] = U.int(number)
      total.sequence = math.max(total.sequence, number)
      C.widen(total, args[at + 2], args[at + 3])
      C.add_sums(total, args[at + 4])
    end
    -- An explicit number raises the counter, a duplicate's too, so that no later caller is handed it again.
    highest = math.max(highest, given or tonumber(reply[#reply]) or 0)
  end
  if highest > before then
    L.set_sequence(ctx, rollout.id, highest)
  end
  return reply, ids, payloads, total
end
