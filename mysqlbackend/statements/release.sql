-- release.sql: remove what owner holds.
--
-- params   signal, µs, name, owner
-- returns  as the number of changed rows: 1 if it held, 0 if not; as the insert id: the
--          connection of the first who waits, 0 if nobody does
--
-- If somebody waits, the lock is kept for the first of them for so many µs: else whoever
-- releases and locks again would always be there before it.
--
-- The row stays, and with it the fence; rows that come and go would deadlock. The owner
-- is blanked: an acquisition or a renewal that began before this statement, and was
-- kept waiting for the row, takes the term to be running still, and would revive it.

UPDATE {table}
SET
  owner = '', since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL IF(LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)) = 0, 0, ?) MICROSECOND
WHERE name = ? AND owner = ? AND expires > UTC_TIMESTAMP(6)
