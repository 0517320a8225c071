-- name: fold
-- does: adds the sums of the next `spans` events to their attempts and rollouts, and moves the aggregator's position, in one step.
-- flags: allow-oom
-- keys: meta
-- args: clock, limit (events)
-- result: ok, events read, last event id ('' = none); or gap, the event id before which one is missing; or unknown_event, its type and id
-- events:

-- What one event adds to its attempt and to its rollout.
function C.share_of(e)
  local highest = '0'
  for number in string.gmatch(e.numbers, '%d+') do
    if U.less(highest, number) then
      highest = number
    end
  end
  return { spans = tonumber(e.count), sums = e.sums, first = e.first, last = e.last, sequence = highest }
end

function C.add_share(totals, key, share)
  local total = totals[key]
  if not total then
    total = { spans = 0, sequence = '0' }
    totals[key] = total
  end
  total.spans = total.spans + share.spans
  if share.sums then
    total.sums = total.sums and U.add_sums(total.sums, share.sums) or share.sums
  end
  total.first = U.smaller(total.first, share.first)
  total.last = U.greater(total.last, share.last)
  total.sequence = U.greater(total.sequence, share.sequence)
end

-- Writes the totals of one key; a key that was retired meanwhile stays away.
function C.write_totals(key, total)
  local old = U.read(key, total.sums and FOLDED or FOLDED_ALWAYS)
  if not old.status then
    return
  end
  local set = { 'spans', U.int((old.spans or 0) + total.spans) }
  local sums = total.sums and U.parse_sums(total.sums) or {}
  for _, name in ipairs(SUMS) do
    if sums[name] and sums[name] ~= '0' then
      local sum = name == 'reward' and sums.reward or U.int((old[name] or 0) + sums[name])
      U.put(set, name, sum)
    end
  end
  U.put(set, 'first', U.smaller(old.first, total.first))
  U.put(set, 'last', U.greater(old.last, total.last))
  U.put(set, 'sequence', U.greater(old.sequence, total.sequence))
  redis.call('HSET', key, unpack(set))
end

-- Reads on from the group's position. NOACK inside the function: reading and applying are one step, nothing is pending.
function C.read_log(prefix, meta, limit)
  local log = prefix .. 'log'
  local from = redis.call('HGET', meta, 'folded_id') or '0'
  local got = U.with_group(log, 'aggregator', from,
    'XREADGROUP', 'GROUP', 'aggregator', 'fold', 'COUNT', limit, 'NOACK', 'STREAMS', log, '>')
  return got and got[1][2] or {}
end

-- Sums up a batch. Returns totals by key, spans, the last good event, and a refusal where the log cannot be trusted.
function C.sum_events(prefix, events, n)
  local totals, spans, last = {}, 0, nil
  for _, event in ipairs(events) do
    local e = U.map(event[2])
    if tonumber(e.n) ~= n + 1 then
      return totals, spans, last, n, { 'gap', event[1] }
    end
    if not A.by_type[e.type] then
      return totals, spans, last, n, { 'unknown_event', e.type, event[1] }
    end
    if e.type == 'spans' then
      local share = C.share_of(e)
      spans = spans + share.spans
      C.add_share(totals, prefix .. 'rollout:' .. e.rollout, share)
      C.add_share(totals, prefix .. 'attempt:' .. e.rollout .. ':' .. e.attempt, share)
    end
    n, last = n + 1, event[1]
  end
  return totals, spans, last, n, nil
end
