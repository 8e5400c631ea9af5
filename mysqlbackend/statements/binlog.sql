-- binlog.sql: whether the server writes statements, and not rows, into a binary log.
--
-- returns  two rows if it does
--
-- A replica is read-only. There acquire.sql would do nothing when it is executed again.

SHOW SESSION VARIABLES
WHERE Variable_name = 'log_bin' AND Value = 'ON' OR Variable_name = 'binlog_format' AND Value = 'STATEMENT'
