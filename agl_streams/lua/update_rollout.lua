-- name: update_rollout
-- does: replaces fields of a rollout; a queuing status puts it on the queue exactly once, a finished one settles entry and deadline.
-- flags: allow-oom
-- keys: meta
-- args: clock, rollout, expected body version, body ('' = unchanged), status ('' = unchanged), token of this request, then pairs of field name and value ('' = null) of mode, resources, timeout, unresponsive, max, retry
-- result: ok, view of the rollout; or not_found_rollout, changed (the body was replaced meanwhile: read again)
-- events: rollout_updated

-- What a change of status means for the queue and for a dead letter. Setting the status that a rollout has changes nothing.
function C.requeue_fields(ctx, fields, rollout, status)
  U.put(fields, 'to', status)
  U.put(fields, 'undead', S.dead(ctx, rollout.id))
  if S.queued[status] then
    -- Already waiting: the entry stays where it is, so that the rollout is on the queue exactly once.
    U.put(fields, 'requeue', not rollout.entry and '1')
    U.put(fields, 'deliveries', '0')
  else
    U.put(fields, 'unqueue', rollout.entry)
  end
end

function C.rollout_change(ctx, rollout, args)
  local fields, payloads = { 'rollout', rollout.id }, nil
  for at = 7, #args, 2 do
    if args[at + 1] ~= (rollout[args[at]] or '') then
      fields[#fields + 1] = args[at]
      fields[#fields + 1] = args[at + 1]
    end
  end
  if args[4] ~= '' then
    local version = U.int(tonumber(rollout.body) + 1)
    U.put(fields, 'rollout_body', version)
    payloads = { S.body_name(rollout.id, version), args[4] }
  end
  if args[5] ~= '' and args[5] ~= rollout.status then
    C.requeue_fields(ctx, fields, rollout, args[5])
  end
  return fields, payloads
end

-- Limits and status of the rollout bear on each of its attempts that is still open.
function C.settle_deadlines(ctx, rollout)
  for seq = 1, tonumber(rollout.attempts or '0') do
    local attempt_id = redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout.id, 'a:' .. U.int(seq))
    C.settle_deadline(ctx, rollout.id, attempt_id)
  end
end

function C.update_rollout(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local rollout = S.rollout(ctx, args[2])
  if not rollout then
    return { 'not_found_rollout' }
  end
  if not U.recall(ctx, args[6]) then
    if args[4] ~= '' and args[3] ~= rollout.body then
      return { 'changed' }
    end
    local fields, payloads = C.rollout_change(ctx, rollout, args)
    if #fields > 2 then
      U.emit(ctx, 'rollout_updated', fields, payloads)
      C.settle_deadlines(ctx, rollout)
    end
    U.remember(ctx, args[6], '1')
  end
  return { 'ok', S.view(ctx.prefix, rollout.id) }
end
