-- session-variables.sql: whether other servers have locks of their own, and when the server's TCP
-- gives up a silent connection. Not all servers have all of these variables.

SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('wsrep_on', 'group_replication_single_primary_mode', 'tcp_keepalive_time')
