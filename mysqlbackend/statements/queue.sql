-- queue.sql: wait for the signal of a name: to become the first of those who wait for it.
--
-- params   signal, seconds to wait at most; {millis}: the same in ms
-- returns  1: this connection has it; 0, NULL or error 3024: not in time
--
-- MySQL knows whole seconds only and takes the ms from the hint; MariaDB knows fractions and
-- takes the hint for a comment.

SELECT /*+ MAX_EXECUTION_TIME({millis}) */ GET_LOCK(?, ?)
