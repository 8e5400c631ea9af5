-- session-try.sql: acquire a user-level lock that no connection has, without checks and a fence.
--
-- params   name
-- returns  1, or 0 if another connection has the lock

SELECT IFNULL(GET_LOCK(?, 0), 0)
