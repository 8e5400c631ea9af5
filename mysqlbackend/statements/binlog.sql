-- binlog.sql: whether the server writes statements, and not rows, into a binary log.
--
-- returns  two rows if it does
--
-- A replica is read-only. If it executed acquire.sql itself, the statement would do nothing
-- there.

SHOW SESSION VARIABLES
WHERE Variable_name = 'log_bin' AND Value = 'ON'
  OR Variable_name = 'binlog_format' AND Value = 'STATEMENT'
