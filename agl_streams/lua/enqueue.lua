-- name: enqueue
-- does: puts rollouts on the queue, in the order given. An id that exists is returned unchanged.
-- flags:
-- keys: meta
-- args: clock, then per rollout: id, body, mode, resources, timeout_us, unresponsive_us, max_attempts, retry ('' = none)
-- result: ok, then one view per rollout
-- events: rollout_enqueued


C.WIDTH = 8

function C.rollout_fields(args, at)
  local fields = { 'rollout', args[at], 'body', '1' }
  for i, name in ipairs({ 'mode', 'resources', 'timeout', 'unresponsive', 'max', 'retry' }) do
    U.put(fields, name, args[at + 1 + i] ~= '' and args[at + 1 + i])
  end
  return fields, { S.body_name(args[at], '1'), args[at + 1] }
end

function C.enqueue(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local reply = { 'ok' }
  for at = 2, #args, C.WIDTH do
    if redis.call('EXISTS', ctx.prefix .. 'rollout:' .. args[at]) == 0 then
      local fields, payloads = C.rollout_fields(args, at)
      U.emit(ctx, 'rollout_enqueued', fields, payloads)
    end
    reply[#reply + 1] = S.view(ctx.prefix, args[at])
  end
  return reply
end
