-- session-galera.sql: whether the server is a node of a Galera cluster.

SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'
