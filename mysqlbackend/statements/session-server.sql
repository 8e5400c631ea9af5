-- session-server.sql: acquire the mark of this connection, and return what its locks depend on.
--
-- params   the mark, as in session-lock.sql
-- returns  1, a pause, whether SYSDATE is the time at which it is evaluated, and not the
--          statement's time (sysdate-is-now), the silence in seconds after which the server ends
--          the connection

SELECT IFNULL(GET_LOCK(?, 0), 0), SLEEP(0.001), SYSDATE(6) > NOW(6), @@session.wait_timeout
