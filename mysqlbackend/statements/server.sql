-- server.sql: properties of the server, and settings of this connection.
--
-- returns  version, the present database, whether it is read-only, autocommit, whether
--          assignments are simultaneous, whether '' is NULL, whether the server converts
--          the text of parameters, innodb_lock_wait_timeout in seconds, the number of
--          this connection, max_allowed_packet in bytes

SELECT
  VERSION(), IFNULL(DATABASE(), ''),
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only,
  @@session.autocommit,
  @@session.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%',
  @@session.sql_mode LIKE '%EMPTY_STRING_IS_NULL%',
  @@session.character_set_client <> @@session.character_set_connection,
  @@session.innodb_lock_wait_timeout,
  CONNECTION_ID(), @@session.max_allowed_packet
