-- schema.sql: the table of locks. {table} is its name in all statements.
--
-- One row for each name that is or was recently held. The only unique key is on the bytes of
-- the name. A character set would treat "a", "A" and "a " as one name. With a second unique
-- key it is undefined which row an upsert changes. There is no other index: each acquisition
-- would change it, and it could cause deadlocks.
--
-- name     the name of the lock
-- owner    the holder; '' after a release: there is none, or the lock is kept for the first
--          waiter; '*': the holders and waiters stand in roster
-- token    the fence, in µs since 2026 or higher; it never decreases
-- since    when the present owner acquired the lock, or the last one was removed, in UTC
-- expires  the end of the term, in UTC; the lock is free if it is not after now
-- meta     the holder's description of itself
-- roster   a document of package roster, without meaning unless the owner is '*'

CREATE TABLE IF NOT EXISTS {table} (
  name    VARBINARY(1024) NOT NULL,
  owner   VARBINARY(64)   NOT NULL,
  token   BIGINT          NOT NULL,
  since   DATETIME(6)     NOT NULL,
  expires DATETIME(6)     NOT NULL,
  meta    VARBINARY(1024) NOT NULL,
  roster  MEDIUMBLOB,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
