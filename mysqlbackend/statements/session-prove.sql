-- session-prove.sql: prove that this connection's locks exclude.
--
-- params   this connection's mark, as in session-lock.sql
-- returns  1, or 0 if the server is read-only or this is another connection

SELECT IFNULL(IS_USED_LOCK(?) = CONNECTION_ID(), 0) AND CONCAT(@@global.read_only) IN ('0', 'OFF')
  AND NOT @@global.innodb_read_only
