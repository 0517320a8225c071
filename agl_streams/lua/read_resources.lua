-- name: read_resources
-- does: bundles of resources by id (newest version), or the latest of the namespace when none is named.
-- flags: no-writes
-- keys: meta
-- args: resources ids (escaped), or nothing
-- result: ok, then per id: id, version, create_us, update_us, content; or false
-- events:
function C.resources_view(prefix, id)
  local row = U.read(prefix .. 'resources:' .. id, { 'version', 'create', 'update' })
  if not row.version then
    return false
  end
  return { id, row.version, row.create, row.update, redis.call('GET', prefix .. 'resources:' .. id .. ':' .. row.version) }
end

function C.read_resources(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  if #args == 0 then
    args = redis.call('ZREVRANGE', prefix .. 'resources', 0, 0)
  end
  for _, id in ipairs(args) do
    reply[#reply + 1] = C.resources_view(prefix, id)
  end
  return reply
end
