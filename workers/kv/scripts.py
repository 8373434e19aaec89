"""Scripts that Redis runs for `workers/kv/store.py`: Lua that touches the keys of one hash tag, and no value.

ARGV of both that ask: TTL in seconds, the longest value, the longest name, the most names.
"""

from typing import Final

# A session's names whose values may be ours; what cannot be is deleted.
# → [of the wrong type, too many, oversized, names…]
ASK_SESSION: Final = """
redis.call('EXPIRE', KEYS[1], ARGV[1])
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'none' then return {0, 0, 0} end
if kind ~= 'hash' then redis.call('DEL', KEYS[1]) return {1, 0, 0} end
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[4]) then redis.call('DEL', KEYS[1]) return {0, 1, 0} end
local found = {0, 0, 0}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if #name > tonumber(ARGV[3]) or redis.call('HSTRLEN', KEYS[1], name) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], name)
    found[3] = found[3] + 1
  else
    found[#found + 1] = name
  end
end
return found
"""

# → for each key 1 where it is there and may be ours, else 0; behind them [of the wrong type, too many, oversized].
ASK_SHARED: Final = """
local found, wrong, oversized = {}, 0, 0
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  found[i] = 0
  if kind == 'none' then
  elseif kind ~= 'string' then
    redis.call('DEL', key)
    wrong = wrong + 1
  elseif redis.call('STRLEN', key) > tonumber(ARGV[2]) then
    redis.call('DEL', key)
    oversized = oversized + 1
  else
    redis.call('EXPIRE', key, ARGV[1])
    found[i] = 1
  end
end
found[#found + 1] = wrong
found[#found + 1] = 0
found[#found + 1] = oversized
return found
"""

# Before the values are written: room for them. ARGV: names to drop. → 1 where a key of the wrong type stood there.
OPEN: Final = """
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) return 1 end
for _, name in ipairs(ARGV) do redis.call('HDEL', KEYS[1], name) end
return 0
"""
