-- name: begin
-- does: opens an attempt for each entry that a blocked reader was handed, and takes the entry off the queue.
-- flags:
-- keys: meta
-- args: clock, worker, lease_us, then per entry: entry id, rollout, new attempt id
-- result: ok, then one view per entry that could be begun; an entry that is void (its rollout left the queue) gives false
-- events: attempt_started

-- Opens an attempt and arms its deadline. Used by every command that makes one.
function C.open_attempt(ctx, rollout, attempt_id, worker, lease_us, unqueue)
  local seq = U.int(tonumber(rollout.attempts or '0') + 1)
  local fields = { 'rollout', rollout.id, 'attempt', attempt_id, 'seq', seq, 'to', 'preparing' }
  U.put(fields, 'worker', worker ~= '' and worker)
  U.put(fields, 'lease', lease_us ~= '' and lease_us)
  U.put(fields, 'deliveries', unqueue and U.int(tonumber(rollout.deliveries or '0') + 1))
  U.put(fields, 'unqueue', unqueue or rollout.entry)
  U.put(fields, 'undead', rollout.dead)
  U.emit(ctx, 'attempt_started', fields)
  if lease_us ~= '' then
    L.lease(ctx, rollout.id, attempt_id, lease_us)
  end
  L.arm(ctx, rollout, { id = attempt_id, start = U.int(ctx.now) })
  if rollout.latest and S.finished[rollout.status] then
    C.settle_deadline(ctx, rollout.id, rollout.latest)
  end
end

function C.begin(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local reply = { 'ok' }
  for at = 4, #args, 3 do
    local entry, rollout, attempt_id = args[at], S.rollout(ctx, args[at + 1]), args[at + 2]
    local begun = rollout and rollout.latest == attempt_id
    if rollout and not begun and rollout.entry == entry and S.queued[rollout.status] then
      C.open_attempt(ctx, rollout, attempt_id, args[2], args[3], entry)
      begun = true
    end
    if not begun then
      C.drop_entry(ctx, entry)
    end
    reply[#reply + 1] = begun and S.view(ctx.prefix, rollout.id) or false
  end
  return reply
end

-- Takes an entry that belongs to no queued rollout out of the stream and out of the reader's hands.
function C.drop_entry(ctx, entry)
  redis.call('XACK', ctx.prefix .. 'tasks', 'runners', entry)
  redis.call('XDEL', ctx.prefix .. 'tasks', entry)
end
