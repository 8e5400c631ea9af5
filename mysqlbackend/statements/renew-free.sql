-- renew-free.sql: renew.sql for many grants with one TTL, except those whose rows are locked
-- now.
--
-- params   {names}: the names, their number, TTL in µs, whether the grants have fences; {grants}:
--          name, owner and fence of each, where 0 is no fence
-- returns  as the number of changed rows: the number of new terms;
--          as the insert id: the end of the new terms in µs since 2026, 0 if there are none,
--          1 if the server is read-only, which changes nothing; see acquire.sql
--
-- It never waits: a row that stays locked would cost the other leases a second, and keep
-- their rows locked meanwhile. UPDATE has no SKIP LOCKED, so a derived table locks the rows.
-- LIMIT makes the server evaluate that table first, and STRAIGHT_JOIN keeps the order. The
-- index is forced: a scan of a small table would lock the rows of other names.
--
-- With sql_safe_updates both servers refuse the scan of the derived table. So it is off for
-- this statement. Each server treats the syntax of the other server as a comment.

/*M! SET STATEMENT sql_safe_updates = 0 FOR */ UPDATE /*+ SET_VAR(sql_safe_updates = OFF) */ (
  SELECT name AS free FROM {table} FORCE INDEX (PRIMARY)
  WHERE name IN ({names}) LIMIT ? FOR UPDATE SKIP LOCKED
) f STRAIGHT_JOIN {table} t FORCE INDEX (PRIMARY) ON t.name = f.free
SET t.expires = GREATEST(t.expires, TIMESTAMP'2026-01-01 00:00:00' + INTERVAL LAST_INSERT_ID(
  IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1,
    TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)) + ?)) MICROSECOND)
WHERE (t.name, t.owner, IF(?, t.token, 0)) IN ({grants}) AND t.expires > UTC_TIMESTAMP(6)
