-- session-unlock.sql: free a user-level lock of this connection.
--
-- params   name
-- returns  1; 2 if the server is read-only, so that the connection's other locks exclude no client;
--          0 if this connection does not have the lock

SELECT IFNULL(RELEASE_LOCK(?), 0) *
  IF(CONCAT(@@global.read_only) IN ('0', 'OFF') AND NOT @@global.innodb_read_only, 1, 2)
