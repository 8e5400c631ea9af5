local told = redis.pcall('SPUBLISH', KEYS[1] .. ':free', '')
if type(told) == 'table' then redis.pcall('PUBLISH', KEYS[1] .. ':free', '') end
