local reply = redis.pcall('SPUBLISH', KEYS[1] .. ':free', '')
if type(reply) == 'table' then redis.pcall('PUBLISH', KEYS[1] .. ':free', '') end
