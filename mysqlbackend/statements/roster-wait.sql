-- roster-wait.sql: an entry of a waiter, behind all other entries of a roster.
--
-- params   entry without since, expires; place in µs, place in µs, name; the two kinds that the
--          first entry may have; maximum number of entries, maximum bytes, owner
-- returns  as the number of changed rows: 0 if the row is not such a roster, or has an entry of the
--          owner, or the server is read-only; as the insert id: the new token
--
-- An entry of a waiter is valid behind any others: a later roster-write.sql grants it. Until then
-- the entries are not all holders, so roster-take.sql adds no further holder.

UPDATE {table}
SET
  token = LAST_INSERT_ID(
    GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)))),
  roster = JSON_ARRAY_APPEND({doc}, '$', JSON_SET(CONVERT(? USING utf8mb4),
    '$.since', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    '$.expires', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?)),
  expires = GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
WHERE name = ? AND owner = '*' AND expires > UTC_TIMESTAMP(6)
  AND CONCAT(@@global.read_only) IN ('0', 'OFF')
  AND JSON_UNQUOTE(JSON_EXTRACT({doc}, '$[0].kind')) IN (?, ?)
  AND JSON_LENGTH({doc}) < ? AND LENGTH(roster) < ?
  AND JSON_SEARCH({doc}, 'one', ?, NULL, '$[*].owner') IS NULL
