-- logs.sql: settings of the server's logs.
--
-- returns  rows of a variable and its value; not all servers have all of these variables

SHOW SESSION VARIABLES WHERE Variable_name IN
  ('log_bin', 'binlog_format', 'innodb_flush_log_at_trx_commit', 'sync_binlog')
