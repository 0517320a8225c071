-- The spans of one group of append_spans before anything is written: which are new, what number each gets, and their sums.
-- `group` names rollout and attempt, and the first and last place of its spans in args.

-- The values already stored under the given span ids.
function C.stored_spans(ctx, args, group)
  local ids = {}
  for at = group.first, group.last, C.SPAN_WIDTH do
    ids[#ids + 1] = args[at]
  end
  return redis.call('HMGET', ctx.prefix .. 'spans:' .. group.rollout .. ':' .. group.attempt, unpack(ids))
end

-- Widens the batch's time range and sums by one span's. Times stay text: only the smaller and the greater are picked.
function C.widen(batch, first, last, sums)
  if first ~= batch.first and first ~= '' and (not batch.first or U.less(first, batch.first)) then
    batch.first = first
  end
  if last ~= batch.last and last ~= '' and (not batch.last or U.less(batch.last, last)) then
    batch.last = last
  end
  if sums ~= '' then
    batch.sums = batch.sums and U.add_sums(batch.sums, sums) or sums
  end
end

-- The places in args of the spans that are new, and how many of them want a number. A span that is there already is
-- answered here: with its number if the same request brought it, else with false.
function C.find_new(ctx, args, group, reply)
  -- `fresh`: ids met in this call; a second span of that id is a duplicate, on the first try as on a repeat.
  local stored, fresh, places, unnumbered = C.stored_spans(ctx, args, group), {}, {}, 0
  for at = group.first, group.last, C.SPAN_WIDTH do
    local span, place = args[at], (at - group.first) / C.SPAN_WIDTH + 1
    if fresh[span] then
      reply[place + 1] = false
    elseif stored[place] then
      fresh[span] = true
      reply[place + 1] = C.stored_by(stored[place], args[at + 5])
    else
      fresh[span] = true
      places[#places + 1] = at
      unnumbered = unnumbered + (args[at + 1] == '' and 1 or 0)
    end
  end
  return places, unnumbered
end

-- Returns the reply; and, when a span is new, the event's fields and the payloads.
function C.collect(ctx, args, group)
  local reply = { 'ok' }
  local places, unnumbered = C.find_new(ctx, args, group, reply)
  local following = unnumbered > 0 and L.take_sequences(ctx, group.rollout, unnumbered)
  local batch, ids, numbers, payloads = {}, {}, {}, {}
  for i, at in ipairs(places) do
    local number = args[at + 1]
    if number == '' then
      number, following = U.int(following), following + 1
    end
    ids[i], numbers[i] = args[at], number
    payloads[2 * i - 1], payloads[2 * i] = args[at], args[at + 5]
    reply[(at - group.first) / C.SPAN_WIDTH + 2] = number
    C.widen(batch, args[at + 2], args[at + 3], args[at + 4])
  end
  C.raise_sequence(ctx, args, group)
  batch.ids, batch.numbers = ids, numbers
  return reply, #ids > 0 and C.batch_fields(group, batch) or nil, payloads
end

-- An explicit number raises the counter, a duplicate's too, so that no later caller is handed it again.
function C.raise_sequence(ctx, args, group)
  local given = 0
  for at = group.first + 1, group.last, C.SPAN_WIDTH do
    given = args[at] ~= '' and math.max(given, args[at]) or given
  end
  if given > 0 then
    L.raise_sequence(ctx, group.rollout, given)
  end
end

function C.batch_fields(group, batch)
  local fields = {
    'rollout', group.rollout, 'attempt', group.attempt, 'count', #batch.ids, 'ids', table.concat(batch.ids, '\n'),
    'numbers', table.concat(batch.numbers, ','),
  }
  U.put(fields, 'first', batch.first)
  U.put(fields, 'last', batch.last)
  U.put(fields, 'sums', batch.sums)
  return fields
end
