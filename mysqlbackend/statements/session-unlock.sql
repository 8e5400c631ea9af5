-- session-unlock.sql: free a user-level lock of this connection.
--
-- params   name
-- returns  1, or 0 or NULL if this connection does not have the lock

SELECT IFNULL(RELEASE_LOCK(?), 0)
