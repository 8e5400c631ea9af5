-- roster-renew.sql: a new term for one holder in a roster, or for the place of one waiter.
--
-- params   TTL in µs, owner, owner, TTL in µs, name, owner, fence, owner, fence, owner; 0 is any
--          fence
-- returns  as the number of changed rows: 0 if owner holds nothing there with this fence, or does
--          not wait there, or the server is read-only; for the fence see renew.sql
--
-- {isWanted} distinguishes holders from waiters, which have no fence.
--
-- This statement waits for its turn. So a client on a slow network renews its lease also while
-- other clients change the roster all the time. The term only grows; see renew.sql.

UPDATE {table}
SET
  token = GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6))),
  expires = GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND),
  roster = JSON_SET({doc}, {expires}, GREATEST(CAST(JSON_EXTRACT({doc}, {expires}) AS SIGNED),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?))
WHERE name = ? AND owner = '*' AND CONCAT(@@global.read_only) IN ('0', 'OFF')
  AND JSON_EXTRACT({doc}, {granted}) {isWanted}
  AND (? = 0 OR CAST(JSON_EXTRACT({doc}, {fence}) AS SIGNED) = ?)
  AND CAST(JSON_EXTRACT({doc}, {expires}) AS SIGNED)
    > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
