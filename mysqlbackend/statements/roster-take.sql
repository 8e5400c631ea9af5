-- roster-take.sql: a further holder of a name whose entries are all holders of the same kind. Some
-- of these may leave at once.
--
-- params   {removed}: the owner of each entry that leaves; entry without fence, since, expires;
--          TTL in µs, TTL in µs, name, kind, number of entries that leave, maximum number of
--          holders, maximum bytes, owner; {present}: like {removed}
-- returns  as the number of changed rows: 0 if the row is not such a roster, or the server is
--          read-only; as the insert id: the fence
--
-- The name may also be free, if no entry leaves: then its row becomes a roster. A lock that is kept
-- for its first waiter is not free; see acquire.sql. The driver makes all other changes by
-- roster-read.sql and roster-write.sql. This statement needs no second one, so no other client can
-- overtake it. Its term counts from its own beginning, and it raises the token; see acquire.sql and
-- roster-write.sql.
--
-- The server makes the assignments from left to right; see acquire.sql. {doc} is the text of the
-- roster.

UPDATE {table}
SET
  roster = IF(owner = '*' AND expires > UTC_TIMESTAMP(6), roster, '[]'),
  {removed}
  token = LAST_INSERT_ID(
    GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)))),
  roster = JSON_ARRAY_APPEND({doc}, '$', JSON_SET(CONVERT(? USING utf8mb4),
    '$.fence', token,
    '$.since', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    '$.expires', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?)),
  owner = '*', meta = '', since = UTC_TIMESTAMP(6),
  expires = GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
WHERE name = ? AND CONCAT(@@global.read_only) IN ('0', 'OFF')
  AND IF(owner = '*' AND expires > UTC_TIMESTAMP(6),
    JSON_LENGTH(JSON_EXTRACT({doc}, '$[*].granted')) = JSON_LENGTH({doc})
    AND JSON_LENGTH(JSON_SEARCH({doc}, 'all', ?, NULL, '$[*].kind')) = JSON_LENGTH({doc})
    AND JSON_LENGTH({doc}) - ? < ? AND LENGTH(roster) < ?
    AND JSON_SEARCH({doc}, 'one', ?, NULL, '$[*].owner') IS NULL
    {present},
    {isFree} AND expires <= UTC_TIMESTAMP(6))
