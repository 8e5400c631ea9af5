-- server.sql: properties of the server, and settings of this connection.
--
-- returns  version, the present database, whether it is read-only, autocommit, whether
--          assignments are simultaneous, whether '' is NULL, innodb_lock_wait_timeout in
--          seconds

SELECT
  VERSION(), IFNULL(DATABASE(), ''),
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only,
  @@session.autocommit,
  @@session.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%',
  @@session.sql_mode LIKE '%EMPTY_STRING_IS_NULL%', @@session.innodb_lock_wait_timeout
