-- name: fold
-- does: adds the sums of the next `spans` events to their attempts and rollouts, and moves the aggregator's position, in one step.
-- flags: allow-oom
-- keys: meta
-- args: clock, limit (events)
-- result: ok, events read, last event id ('' = none); or gap, the event id before which one is missing; or unknown_event, its type and id
-- events:

-- Adds one event's sums to the totals of one key.
function C.add_event(totals, key, e)
  local total = totals[key]
  if not total then
    total = { spans = 0, sequence = '0' }
    totals[key] = total
  end
  total.spans = total.spans + e.count
  total.sums = e.sums and (total.sums and U.add_sums(total.sums, e.sums) or e.sums) or total.sums
  total.first = C.pick(total.first, e.first, math.min)
  total.last = C.pick(total.last, e.last, math.max)
  for number in string.gmatch(e.numbers, '%d+') do
    total.sequence = C.pick(total.sequence, number, math.max)
  end
end

-- The smaller or greater of two numbers as text, either of which may be missing.
function C.pick(a, b, choose)
  return a and b and U.int(choose(tonumber(a), tonumber(b))) or a or b
end

-- Writes the totals of one key; a key that was retired meanwhile stays away.
function C.write_totals(key, total)
  local old = U.read(key, FOLDED)
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
  U.put(set, 'first', C.pick(old.first, total.first, math.min))
  U.put(set, 'last', C.pick(old.last, total.last, math.max))
  U.put(set, 'sequence', C.pick(old.sequence, total.sequence, math.max))
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
      spans = spans + tonumber(e.count)
      C.add_event(totals, prefix .. 'rollout:' .. e.rollout, e)
      C.add_event(totals, prefix .. 'attempt:' .. e.rollout .. ':' .. e.attempt, e)
    end
    n, last = n + 1, event[1]
  end
  return totals, spans, last, n, nil
end
