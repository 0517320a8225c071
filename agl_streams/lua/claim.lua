-- name: claim
-- does: the non-blocking dequeue: takes the oldest queued rollouts and opens an attempt of each, in one step.
-- flags:
-- keys: meta
-- args: clock, worker ('' = unnamed), lease_us ('' = none), token of this request, then one new attempt id per wanted rollout
-- result: ok, then one view per rollout claimed (fewer when the queue runs dry)
-- events: attempt_started, worker_idle

-- A request whose answer was lost comes again with the same token and attempt ids, and gets its first answer.
function C.claimed_before(ctx, token, attempt_id)
  local known = redis.call('GET', ctx.prefix .. 'live:claim:' .. attempt_id)
  if known and string.sub(known, 1, #token) == token then
    return string.sub(known, #token + 1)
  end
end

-- The next entry whose rollout really waits for it, with that rollout.
function C.next_queued(ctx, consumer)
  local tasks = ctx.prefix .. 'tasks'
  while true do
    local got = U.with_group(tasks, 'runners', '0',
      'XREADGROUP', 'GROUP', 'runners', consumer, 'COUNT', '1', 'STREAMS', tasks, '>')
    if not got then
      return nil
    end
    local entry, fields = got[1][2][1][1], U.map(got[1][2][1][2])
    local rollout = fields.rollout and S.rollout(ctx, fields.rollout)
    if rollout and rollout.entry == entry and S.queued[rollout.status] then
      return rollout, entry
    end
    C.drop_entry(ctx, entry)
  end
end

function C.claim(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local worker, token, reply, again = args[2], args[4], { 'ok' }, false
  for at = 5, #args do
    local known = C.claimed_before(ctx, token, args[at])
    local rollout, entry
    again = again or known
    if not known then
      rollout, entry = C.next_queued(ctx, CLAIM_CONSUMER)
    end
    if rollout then
      C.open_attempt(ctx, rollout, args[at], worker, args[3], entry)
      redis.call('SET', ctx.prefix .. 'live:claim:' .. args[at], token .. rollout.id, 'EX', CLAIM_MEMORY_S)
    elseif not known then
      break
    end
    reply[#reply + 1] = S.view(ctx.prefix, known or rollout.id, args[at])
  end
  if worker ~= '' and not again then
    C.polled(ctx, worker, #reply == 1)
  end
  return reply
end

-- A named worker that found nothing is idle; the poll itself is live state, its change of status an event.
function C.polled(ctx, worker, empty)
  redis.call('HSET', ctx.prefix .. 'live:worker:' .. worker, 'dequeue', U.int(ctx.now))
  redis.call('ZADD', ctx.prefix .. 'live:workers', U.int(ctx.now), worker)
  if empty and redis.call('HGET', ctx.prefix .. 'worker:' .. worker, 'status') ~= 'idle' then
    U.emit(ctx, 'worker_idle', { 'worker', worker })
  end
end
