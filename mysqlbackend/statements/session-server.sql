-- session-server.sql: what locks of a connection depend on.
--
-- returns  this connection's number, a pause, whether SYSDATE is the time at which it is
--          evaluated, and not the statement's time (sysdate-is-now), the silence in seconds
--          after which the server ends the connection

SELECT CONNECTION_ID(), SLEEP(0.001), SYSDATE(6) > NOW(6), @@session.wait_timeout
