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

-- Takes a new span into the batch, under its number. Times stay text: only the smaller and the greater are picked.
function C.take(batch, args, at, number)
  local count, first, last, sums = batch.count + 1, args[at + 2], args[at + 3], args[at + 4]
  batch.count, batch.ids[count], batch.numbers[count] = count, args[at], number
  batch.payloads[2 * count - 1], batch.payloads[2 * count] = args[at], args[at + 5]
  if first ~= batch.from and first ~= '' and (not batch.from or U.less(first, batch.from)) then
    batch.from = first
  end
  if last ~= batch.to and last ~= '' and (not batch.to or U.less(batch.to, last)) then
    batch.to = last
  end
  if sums ~= '' then
    batch.sums = batch.sums and U.add_sums(batch.sums, sums) or sums
  end
end

-- Returns the reply; and, when a span is new, the event's fields and the payloads. A span that is there already is
-- answered with its number if the same request brought it, else with false; so is the second of an id in one batch.
-- An explicit number raises the counter, a duplicate's too, so that no later caller is handed it again.
function C.collect(ctx, args, group)
  local stored, reply, fresh = C.stored_spans(ctx, args, group), { 'ok' }, {}
  local batch = { count = 0, ids = {}, numbers = {}, payloads = {} }
  local before = L.sequence(ctx, group.rollout)
  local highest, place, given = before, 0, 0
  for at = group.first, group.last, C.SPAN_WIDTH do
    local span, number = args[at], args[at + 1]
    place = place + 1
    if number ~= '' then
      given = math.max(given, number)
    end
    if fresh[span] then
      reply[place + 1] = false
    elseif stored[place] then
      fresh[span], reply[place + 1] = true, C.stored_by(stored[place], args[at + 5])
    else
      if number == '' then
        highest = highest + 1
        number = U.int(highest)
      end
      fresh[span], reply[place + 1] = true, number
      C.take(batch, args, at, number)
    end
  end
  highest = math.max(highest, given)
  if highest > before then
    L.set_sequence(ctx, group.rollout, highest)
  end
  return reply, batch.count > 0 and C.batch_fields(group, batch) or nil, batch.payloads
end

function C.batch_fields(group, batch)
  local fields = {
    'rollout', group.rollout, 'attempt', group.attempt, 'count', batch.count, 'ids', table.concat(batch.ids, '\n'),
    'numbers', table.concat(batch.numbers, ','),
  }
  U.put(fields, 'first', batch.from)
  U.put(fields, 'last', batch.to)
  U.put(fields, 'sums', batch.sums)
  return fields
end
