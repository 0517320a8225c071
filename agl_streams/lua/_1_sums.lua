-- Sums as events carry them: 'calls,prompt,completion,incomplete,rewards,reward', where reward may be missing.
-- Only what commutes: sums, and of the rewards the last one in log order.

function U.parse_sums(text)
  local sums, at = {}, 1
  for value in string.gmatch(text, '[^,]+') do
    sums[SUMS[at]] = value
    at = at + 1
  end
  return sums
end

-- The sum of two, the second being the later.
function U.add_sums(earlier, later)
  local a, b, parts = U.parse_sums(earlier), U.parse_sums(later), {}
  for at = 1, #SUMS - 1 do
    parts[at] = U.int(a[SUMS[at]] + b[SUMS[at]])
  end
  parts[#SUMS] = b.reward or a.reward
  return table.concat(parts, ',')
end

-- Whether one whole number is less than another, both as text. Three times as fast as converting them.
function U.less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

-- The smaller, and the greater, of two such, either of which may be missing.
function U.smaller(a, b)
  return a and (not b or U.less(a, b)) and a or b
end

function U.greater(a, b)
  return a and (not b or U.less(b, a)) and a or b
end
