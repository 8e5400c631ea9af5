-- claim.sql: move the cursor from one name to another. If two sweeps began at the same name,
-- only one of them moves it.
--
-- params   name of the cursor's row, new, old, old, new
-- returns  as the number of changed rows: 0 if another sweep has moved the cursor

INSERT INTO {table} (name, owner, token, since, expires, meta)
VALUES (?, '', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ?)
ON DUPLICATE KEY UPDATE
  expires = IF(meta = ?, UTC_TIMESTAMP(6), expires),
  meta    = IF(meta = ?, ?, meta)
