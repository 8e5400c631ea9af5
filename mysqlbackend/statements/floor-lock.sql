-- floor-lock.sql: the minimum that can lock a row, for benchmarks.
--
-- params   name, owner, owner

INSERT INTO {table} (name, owner, token, since, expires, meta)
VALUES (?, ?, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '')
ON DUPLICATE KEY UPDATE owner = ?, expires = UTC_TIMESTAMP(6)
