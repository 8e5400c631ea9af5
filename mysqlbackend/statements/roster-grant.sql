-- roster-grant.sql: the lock for a waiter that has an entry in a roster.
--
-- params   TTL in µs; owner of granted, fence, since, expires, expires; TTL in µs, name; owner,
--          the greatest number of entries in front, owner, owner, owner
-- returns  as the number of changed rows: 0 if another entry excludes the owner's, or the owner has
--          no entry or is a holder, or the server is read-only; as the insert id: the fence
--
-- This statement waits for its turn; see roster-renew.sql. The entries in front may only be holders
-- of permits, or readers in a roster without a writer. They count although their terms may be over.

UPDATE {table}
SET
  token = LAST_INSERT_ID(
    GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)))),
  expires = GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND),
  roster = JSON_SET({doc},
    {granted}, JSON_EXTRACT('[true]', '$[0]'), {fence}, token,
    {since}, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    {expires}, GREATEST(CAST(JSON_EXTRACT({doc}, {expires}) AS SIGNED),
      TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?))
WHERE name = ? AND owner = '*' AND CONCAT(@@global.read_only) IN ('0', 'OFF')
  AND {index} <= ?
  AND ({index} = 0 OR JSON_SEARCH({doc}, 'one', 'w', NULL, '$[*].kind') IS NULL)
  AND JSON_EXTRACT({doc}, {granted}) IS NULL
  AND CAST(JSON_EXTRACT({doc}, {expires}) AS SIGNED)
    > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
