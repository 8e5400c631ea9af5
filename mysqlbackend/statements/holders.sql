-- holders.sql: who holds, asked when a renewal has found fewer than it was for. Who is
-- held to be the holder now was renewed: nothing else lets an owner hold again.
--
-- params   {names}: the names
-- returns  rows of name, owner

SELECT name, owner FROM {table} WHERE name IN ({names}) AND expires > UTC_TIMESTAMP(6)
