-- The batch of append_spans before anything is written: which spans are new, what number each gets, and their sums.

-- The values already stored under the given span ids.
function C.stored_spans(ctx, args)
  local key = ctx.prefix .. 'spans:' .. args[2] .. ':' .. args[3]
  if #args == 4 + C.SPAN_WIDTH then
    return { redis.call('HGET', key, args[5]) }
  end
  local ids = {}
  for at = 5, #args, C.SPAN_WIDTH do
    ids[#ids + 1] = args[at]
  end
  return redis.call('HMGET', key, unpack(ids))
end

-- Takes one new span into the batch, under its number. Times stay text: only the smaller and the greater are picked.
function C.take(batch, args, at, number)
  local span = args[at]
  local first, last, sums = args[at + 2], args[at + 3], args[at + 4]
  batch.ids[#batch.ids + 1] = span
  batch.payloads[span] = '|' .. number .. '|' .. args[4] .. '|' .. args[at + 5]
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

-- Returns the reply, and the batch of new spans or nil when there is none. An explicit number counts even for a duplicate.
function C.collect(ctx, args)
  local stored = C.stored_spans(ctx, args)
  local reply, seen, given = { 'ok' }, 0, 0
  local batch = { ids = {}, payloads = {} }
  for at = 5, #args, C.SPAN_WIDTH do
    local number = tonumber(args[at + 1])
    local known = stored[(at - 5) / C.SPAN_WIDTH + 1]
    given = math.max(given, number or 0)
    if known then
      reply[#reply + 1] = C.stored_by(known, args[4])
    elseif batch.payloads[args[at]] then
      reply[#reply + 1] = false
    else
      number = number or L.next_sequence(ctx, args[2])
      seen = math.max(seen, number)
      C.take(batch, args, at, U.int(number))
      reply[#reply + 1] = number
    end
  end
  if given > 0 then
    L.raise_sequence(ctx, args[2], given)
  end
  batch.sequence = U.int(seen)
  return reply, #batch.ids > 0 and batch or nil
end

function C.batch_fields(args, batch)
  local fields = {
    'rollout', args[2], 'attempt', args[3], 'count', #batch.ids, 'ids', table.concat(batch.ids, '\n'),
    'sequence', batch.sequence,
  }
  U.put(fields, 'first', batch.first)
  U.put(fields, 'last', batch.last)
  U.put(fields, 'sums', batch.sums)
  return fields
end
