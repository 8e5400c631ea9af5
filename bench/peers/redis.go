package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const redisPort = "6379"

// newRedisClient returns a client with the defaults of go-redis: 10 connections per CPU.
func newRedisClient(u *backend.URL) (*redis.Client, error) {
	database, err := redisDatabase(u)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(&redis.Options{
		Addr: u.HostsWithPort(redisPort)[0], Username: u.User, Password: u.Password, DB: database,
	}), nil
}

// redisDatabase returns the number of the database, which is the path of the URL.
func redisDatabase(u *backend.URL) (int, error) {
	path := strings.Trim(u.Path, "/")
	if path == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(path)
	if err != nil {
		return 0, fmt.Errorf("the path of %v must be the number of a database", u)
	}
	return n, nil
}
