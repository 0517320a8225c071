-- The batch of append_spans before anything is written: which spans are new, what number each gets, and their sums.

-- Returns the reply; and, when the span is new, the event's fields and its payload. The usual case, so it makes no tables
-- but these: that is a third of the time of the whole command.
function C.collect_one(ctx, args)
  local known = redis.call('HGET', ctx.prefix .. 'spans:' .. args[2] .. ':' .. args[3], args[5])
  local number = args[6]
  if number ~= '' then
    L.raise_sequence(ctx, args[2], tonumber(number))
  elseif not known then
    number = U.int(L.take_sequences(ctx, args[2], 1))
  end
  if known then
    return { 'ok', C.stored_by(known, args[4]) }
  end
  local fields = { 'rollout', args[2], 'attempt', args[3], 'count', '1', 'ids', args[5], 'numbers', number }
  U.put(fields, 'first', args[7] ~= '' and args[7])
  U.put(fields, 'last', args[8] ~= '' and args[8])
  U.put(fields, 'sums', args[9] ~= '' and args[9])
  return { 'ok', number }, fields, { args[5], args[10] }
end

-- The values already stored under the given span ids.
function C.stored_spans(ctx, args)
  local ids = {}
  for at = 5, #args, C.SPAN_WIDTH do
    ids[#ids + 1] = args[at]
  end
  return redis.call('HMGET', ctx.prefix .. 'spans:' .. args[2] .. ':' .. args[3], unpack(ids))
end

-- Widens the batch's time range and sums by one span's. Times stay text: only the smaller and the greater are picked.
function C.widen(batch, first, last, sums)
  if first ~= '' and (not batch.first or tonumber(first) < tonumber(batch.first)) then
    batch.first = first
  end
  if last ~= '' and (not batch.last or tonumber(last) > tonumber(batch.last)) then
    batch.last = last
  end
  if sums ~= '' then
    batch.sums = batch.sums and U.add_sums(batch.sums, sums) or sums
  end
end

-- The places in args of the spans that are new, and how many of them want a number. A span that is there already is
-- answered here: with its number if the same request brought it, else with false.
function C.find_new(ctx, args, reply)
  -- `fresh`: ids met in this call; a second span of that id is a duplicate, on the first try as on a repeat.
  local stored, fresh, places, unnumbered = C.stored_spans(ctx, args), {}, {}, 0
  for at = 5, #args, C.SPAN_WIDTH do
    local span, place = args[at], (at - 5) / C.SPAN_WIDTH + 1
    if fresh[span] then
      reply[place + 1] = false
    elseif stored[place] then
      fresh[span] = true
      reply[place + 1] = C.stored_by(stored[place], args[4])
    else
      fresh[span] = true
      places[#places + 1] = at
      unnumbered = unnumbered + (args[at + 1] == '' and 1 or 0)
    end
  end
  return places, unnumbered
end

-- The same for a batch.
function C.collect(ctx, args)
  local reply = { 'ok' }
  local places, unnumbered = C.find_new(ctx, args, reply)
  local following = unnumbered > 0 and L.take_sequences(ctx, args[2], unnumbered)
  local batch, ids, numbers, payloads = {}, {}, {}, {}
  for i, at in ipairs(places) do
    local number = args[at + 1]
    if number == '' then
      number, following = U.int(following), following + 1
    end
    ids[i], numbers[i] = args[at], number
    payloads[2 * i - 1], payloads[2 * i] = args[at], args[at + 5]
    reply[(at - 5) / C.SPAN_WIDTH + 2] = number
    C.widen(batch, args[at + 2], args[at + 3], args[at + 4])
  end
  C.raise_sequence(ctx, args)
  batch.ids, batch.numbers = ids, numbers
  return reply, #ids > 0 and C.batch_fields(args, batch) or nil, payloads
end

-- An explicit number raises the counter, a duplicate's too, so that no later caller is handed it again.
function C.raise_sequence(ctx, args)
  local given = 0
  for at = 6, #args, C.SPAN_WIDTH do
    given = args[at] ~= '' and math.max(given, args[at]) or given
  end
  if given > 0 then
    L.raise_sequence(ctx, args[2], given)
  end
end

function C.batch_fields(args, batch)
  local fields = {
    'rollout', args[2], 'attempt', args[3], 'count', #batch.ids, 'ids', table.concat(batch.ids, '\n'),
    'numbers', table.concat(batch.numbers, ','),
  }
  U.put(fields, 'first', batch.first)
  U.put(fields, 'last', batch.last)
  U.put(fields, 'sums', batch.sums)
  return fields
end
