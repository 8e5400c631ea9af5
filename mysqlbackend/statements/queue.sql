-- queue.sql: wait for the signal of a name, which makes the connection the first waiter.
--
-- params   signal, maximum wait in seconds; {millis}: the same in ms
-- returns  1: this connection has the signal; 0, NULL or error 3024: not in time; and whether the
--          server is read-only: then the waiter leaves
--
-- MySQL accepts whole seconds only, and reads the ms from the hint. MariaDB accepts fractions,
-- and treats the hint as a comment.

SELECT /*+ MAX_EXECUTION_TIME({millis}) */ GET_LOCK(?, ?),
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only
