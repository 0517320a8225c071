-- The command of fold.lua: read, sum, write, and step back to the last good event if the log cannot be trusted.
function C.fold(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local events = C.read_log(ctx.prefix, keys[1], args[2])
  if #events == 0 then
    return { 'ok', 0, '' }
  end
  local before = redis.call('HMGET', keys[1], 'folded', 'folded_id')
  local totals, spans, last, n, problem = C.sum_events(ctx.prefix, events, tonumber(before[1] or '0'))
  for key, total in pairs(totals) do
    C.write_totals(key, total)
  end
  if last then
    redis.call('HSET', keys[1], 'folded', U.int(n), 'folded_id', last)
    redis.call('HINCRBY', keys[1], 'spans', U.int(spans))
  end
  if problem then
    redis.call('XGROUP', 'SETID', ctx.prefix .. 'log', 'aggregator', last or before[2] or '0')
    return problem
  end
  return { 'ok', #events, last }
end
