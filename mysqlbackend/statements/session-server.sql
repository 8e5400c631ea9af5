-- session-server.sql: what locks of a connection depend on.
--
-- returns  this connection's number, a pause, whether SYSDATE is the time at which it is
--          evaluated, and not that of the statement (sysdate-is-now)

SELECT CONNECTION_ID(), SLEEP(0.001), SYSDATE(6) > NOW(6)
