-- session-prove.sql: prove that this connection's locks exclude.
--
-- params   this connection's number
-- returns  1, or 0 if the server is read-only or this is another connection

SELECT CONNECTION_ID() = ? AND CONCAT(@@global.read_only) IN ('0', 'OFF')
