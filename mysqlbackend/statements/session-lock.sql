-- session-lock.sql: acquire a user-level lock that no connection has.
--
-- params   this connection's mark, name
-- returns  the server's time in µs after the beginning of 2026, which is the fence;
--          0 if another connection has the lock; -1 if the server is read-only or this is another
--          connection: a lock there would exclude no client
--
-- A reader of Aurora has innodb_read_only, and read_only may be off.
--
-- The mark is a user-level lock that this connection alone has. Its number alone does not identify
-- a connection: a server that was restarted gives the same numbers again.
--
-- IF reads the clock when the lock is held. SYSDATE, unlike UTC_TIMESTAMP, is the time at which it
-- is evaluated; otherwise a statement that was slow could return a time from before the previous
-- holder. The time zone of the connection is UTC.

SELECT IF(IS_USED_LOCK(?) = CONNECTION_ID() AND CONCAT(@@global.read_only) IN ('0', 'OFF')
    AND NOT @@global.innodb_read_only,
  IF(GET_LOCK(?, 0), TIMESTAMPDIFF(MICROSECOND, '2026-01-01', SYSDATE(6)), 0), -1)
