-- echo.lua: send a message to the channel of a client of a cluster.
--
-- KEYS     1 a key, whose slot determines the node
-- ARGV     1 channel
-- returns  1
--
-- A node that has left the cluster serves no slot, and so refuses the script. It would execute a
-- PUBLISH without a key, and deliver the message to its own subscribers.

redis.call('PUBLISH', ARGV[1], 'echo')
return 1
