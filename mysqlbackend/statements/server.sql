-- server.sql: what the server is, and how it is set for this connection.
--
-- returns  version, the present database, whether it is read-only, autocommit, whether
--          assignments are simultaneous, innodb_lock_wait_timeout in seconds

SELECT
  VERSION(), IFNULL(DATABASE(), ''), @@global.read_only, @@session.autocommit,
  @@session.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%', @@session.innodb_lock_wait_timeout
