-- The spans of one group of append_spans before anything is written: which are new, what number each gets, and their sums.
-- `group` names rollout and attempt, and the first and last place of its spans in args. One pass, and no call per span:
-- a batch of a hundred must cost little more than its bytes.

-- The values already stored under the given span ids.
function C.stored_spans(ctx, args, group)
  local ids = {}
  for at = group.first, group.last, C.SPAN_WIDTH do
    ids[#ids + 1] = args[at]
  end
  return redis.call('HMGET', ctx.prefix .. 'spans:' .. group.rollout .. ':' .. group.attempt, unpack(ids))
end

-- Widens the batch's range of times, which stay text: only the smaller and the greater are picked.
function C.widen(batch, first, last)
  if first ~= batch.from and first ~= '' and (not batch.from or U.less(first, batch.from)) then
    batch.from = first
  end
  if last ~= batch.to and last ~= '' and (not batch.to or U.less(batch.to, last)) then
    batch.to = last
  end
end

-- Returns the reply; and, when a span is new, the event's fields and the payloads. A span that is there already is
-- answered with its number if the same request brought it, else with false; so is the second of an id in one batch.
-- An explicit number raises the counter, a duplicate's too, so that no later caller is handed it again.
function C.collect(ctx, args, group)
  local stored, reply, fresh = C.stored_spans(ctx, args, group), { 'ok' }, {}
  local ids, numbers, payloads, batch = {}, {}, {}, {}
  local before = L.sequence(ctx, group.rollout)
  local next_number, highest, place, count = before, before, 1, 0
  for at = group.first, group.last, C.SPAN_WIDTH do
    local span, number = args[at], tonumber(args[at + 1])
    if number and number > highest then
      highest = number
    end
    place = place + 1
    if fresh[span] then
      reply[place] = false
    elseif stored[place - 1] then
      fresh[span], reply[place] = true, C.stored_by(stored[place - 1], args[at + 5])
    else
      local payload = args[at + 5]
      if not number then
        next_number = next_number + 1
        number, payload = next_number, U.int(next_number) .. payload
      end
      count = count + 1
      fresh[span], reply[place], ids[count], numbers[count] = true, number, span, number
      payloads[2 * count - 1], payloads[2 * count] = span, payload
      if args[at + 2] ~= batch.from or args[at + 3] ~= batch.to then
        C.widen(batch, args[at + 2], args[at + 3])
      end
      if args[at + 4] ~= '' then
        batch.sums = batch.sums and U.add_sums(batch.sums, args[at + 4]) or args[at + 4]
      end
    end
  end
  highest = math.max(highest, next_number)
  if highest > before then
    L.set_sequence(ctx, group.rollout, highest)
  end
  return reply, count > 0 and C.batch_fields(group, batch, ids, numbers) or nil, payloads
end

-- `numbers` are below 10^13 (the client refuses greater ones), so joining them as numbers loses no digit.
function C.batch_fields(group, batch, ids, numbers)
  local fields = {
    'rollout', group.rollout, 'attempt', group.attempt, 'count', #ids, 'ids', table.concat(ids, '\n'),
    'numbers', table.concat(numbers, ','),
  }
  U.put(fields, 'first', batch.from)
  U.put(fields, 'last', batch.to)
  U.put(fields, 'sums', batch.sums)
  return fields
end
