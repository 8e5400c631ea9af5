-- renew.sql: a new term for many grants of one TTL.
--
-- params   TTL in µs; {names}: the names; {pairs}: name and owner of each
-- returns  as the number of changed rows: how many of them are held
--
-- The names are there for the range of the index, which not every version takes
-- from the pairs. Forced, for a statement that reads the whole of a small table would
-- lock the rows of everybody else.

UPDATE {table} FORCE INDEX (PRIMARY)
SET expires = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE name IN ({names}) AND (name, owner) IN ({pairs}) AND expires > UTC_TIMESTAMP(6)
