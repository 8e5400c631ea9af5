-- release.sql: remove the grant of owner.
--
-- params   signal, µs, name, owner
-- returns  as the number of changed rows: 1 if owner held the lock, 0 if not;
--          as the insert id: the connection of the first waiter, 0 if there is none
--
-- If there is a waiter, the lock is kept for the first one for so many µs. Otherwise a
-- process that releases and locks again would always be faster.
--
-- The row stays, and with it the fence. Rows that come and go would cause deadlocks. The
-- owner is blanked, because an acquisition or a renewal may have begun before this statement
-- and waited for the row. It evaluates the term at its own beginning, and would revive it.

UPDATE {table}
SET
  owner = '', since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL
    IF(LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)) = 0, 0, ?) MICROSECOND
WHERE name = ? AND owner = ? AND expires > UTC_TIMESTAMP(6)
