-- name: expire
-- does: ends what is overdue: attempts past their timeout, silent ones, ones whose runner is gone; puts entries back that were delivered but never begun, or that vanished from the queue. Looks at `limit` attempts and as many entries at most.
-- flags: allow-oom
-- keys: meta
-- args: clock, limit, lease_us (the default lease: how long an absence must be to give grace), begin_ms, max_deliveries
-- result: ok, attempts ended, entries put back, time of the next deadline in microseconds ('' = none), '1' when there may be more
-- events: attempt_lost, redelivered, rollout_dead, grace

-- What the watchdog left behind for its next run; read in one piece, because most runs find nothing to do.
C.WATCH = { 'ran', 'grace', 'repair:queuing', 'repair:requeuing' }

-- If nobody looked for more than a third of the lease, the server, its host or the watchdog was away: then silence proves
-- nothing until one full lease from now. Returns the end of grace.
function C.grace(ctx, watch, lease_us)
  local set, grace = { 'ran', U.int(ctx.now) }, watch.grace
  local overdue = not watch.ran or ctx.now - tonumber(watch.ran) > lease_us / 3
  if overdue and redis.call('EXISTS', ctx.prefix .. 'live:deadlines') == 1 then
    grace = U.int(ctx.now + lease_us)
    U.emit(ctx, 'grace', { 'until', grace })
    U.put(set, 'grace', grace)
  end
  redis.call('HSET', ctx.prefix .. 'live:watch', unpack(set))
  return tonumber(grace or '0')
end

C.LOST = {
  timeout = { 'timeout', 'timeout' },
  unresponsive = { 'unresponsive', 'unresponsive' },
  lease = { 'unresponsive', 'worker_lost' },
}

-- Ends one attempt if it really is overdue, else writes its true deadline. Returns whether it ended.
function C.expire_attempt(ctx, member, grace, lease_us, max_deliveries)
  local rollout_id, attempt_id = string.match(member, '^([^:]*):(.*)$')
  local rollout, attempt = S.rollout(ctx, rollout_id), S.attempt(ctx, rollout_id, attempt_id)
  if not attempt or not L.watched(rollout, attempt) then
    L.forget(ctx, rollout_id, attempt_id)
    return false
  end
  local at, rule = L.deadline(rollout, attempt, L.lease_until(ctx, rollout, attempt, lease_us), grace)
  if not at or ctx.now <= at then
    redis.call(at and 'ZADD' or 'ZREM', ctx.prefix .. 'live:deadlines', unpack(at and { U.int(at), member } or { member }))
    return false
  end
  -- Whichever limit was passed first: once the timeout is passed too, it is a timeout.
  if rollout.timeout and ctx.now > tonumber(attempt.start) + tonumber(rollout.timeout) then
    rule = 'timeout'
  end
  local status, reason = C.LOST[rule][1], C.LOST[rule][2]
  local fields = { 'rollout', rollout_id, 'attempt', attempt_id, 'status', status, 'reason', reason }
  S.put_follow(fields, S.follow(ctx, rollout, attempt, status, reason, max_deliveries))
  U.emit(ctx, 'attempt_lost', fields)
  L.forget(ctx, rollout_id, attempt_id)
  return true
end

function C.expire(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local limit, max_deliveries = tonumber(args[2]), tonumber(args[5])
  local watch, deadlines = U.read(ctx.prefix .. 'live:watch', C.WATCH), ctx.prefix .. 'live:deadlines'
  local grace, due, ended = C.grace(ctx, watch, tonumber(args[3])), {}, 0
  local nearest = redis.call('ZRANGE', deadlines, 0, 0, 'WITHSCORES')
  if nearest[2] and tonumber(nearest[2]) < ctx.now then
    due = redis.call('ZRANGEBYSCORE', deadlines, '-inf', '(' .. U.int(ctx.now), 'LIMIT', 0, limit)
    for _, member in ipairs(due) do
      ended = ended + (C.expire_attempt(ctx, member, grace, args[3], max_deliveries) and 1 or 0)
    end
    nearest = redis.call('ZRANGE', deadlines, 0, 0, 'WITHSCORES')
  end
  local returned, seen = C.redeliver(ctx, args[4], limit, max_deliveries)
  local repaired, unfinished = C.repair(ctx, watch)
  local more = (#due == limit or seen == limit or unfinished) and '1' or ''
  return { 'ok', ended, returned + repaired, nearest[2] and U.int(tonumber(nearest[2])) or '', more }
end
