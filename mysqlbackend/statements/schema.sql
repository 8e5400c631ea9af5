-- schema.sql: the table of locks. {table} is its name in all statements.
--
-- One row per name that is or was lately held. One unique key, on the bytes of the
-- name: a character set would take "a", "A" and "a " for one name, and with a second
-- unique key it is not defined which row an upsert changes. No other index: each
-- would be changed by every acquisition, and be one more thing to deadlock on.
--
-- name     the name of the lock
-- owner    who holds it; '' after a release: nobody, or the first who waits may have it
-- token    the fence, in µs since 2026 or higher; it never falls
-- since    when the present owner came, or the last one was removed, UTC
-- expires  until when it holds, UTC; not after now: the lock is free
-- meta     what it says of itself

CREATE TABLE IF NOT EXISTS {table} (
  name    VARBINARY(1024) NOT NULL,
  owner   VARBINARY(64)   NOT NULL,
  token   BIGINT          NOT NULL,
  since   DATETIME(6)     NOT NULL,
  expires DATETIME(6)     NOT NULL,
  meta    VARBINARY(1024) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
