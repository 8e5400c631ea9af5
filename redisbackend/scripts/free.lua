redis.pcall('PUBLISH', KEYS[1] .. ':free', '')
