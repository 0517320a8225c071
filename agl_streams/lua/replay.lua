-- name: replay
-- does: writes recorded events again under their own ids and applies each with the same `apply` as live. One that is there already is passed over.
-- flags:
-- keys: meta
-- args: clock, then per event: id, number of its values, its fields and values, number of payload values, payload names and bytes
-- result: ok, events given; or gap, event id; or unknown_event, type, event id
-- events: any
function C.replay_one(ctx, args, at)
  local id, width = args[at], tonumber(args[at + 1])
  local flat = { unpack(args, at + 2, at + 1 + width) }
  local payload_at = at + 2 + width
  local payload_width = tonumber(args[payload_at])
  local payloads = { unpack(args, payload_at + 1, payload_at + payload_width) }
  local e, after = U.map(flat), payload_at + 1 + payload_width
  if tonumber(e.n) <= ctx.n and #redis.call('XRANGE', ctx.prefix .. 'log', id, id) == 1 then
    return after, nil -- a repeat after a lost reply
  end
  if tonumber(e.n) ~= ctx.n + 1 then
    return after, { 'gap', id }
  end
  if not A.by_type[e.type] then
    return after, { 'unknown_event', e.type, id }
  end
  redis.call('XADD', ctx.prefix .. 'log', id, unpack(flat))
  U.apply(ctx.prefix, id, e, payloads)
  ctx.n = ctx.n + 1
  return after, nil
end

function C.replay(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local at, count = 2, 0
  while at <= #args do
    local after, problem = C.replay_one(ctx, args, at)
    if problem then
      return problem
    end
    at, count = after, count + 1
  end
  return { 'ok', count }
end
