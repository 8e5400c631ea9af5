// Command dlock holds a distributed lock while a command runs, and shows and breaks
// locks: flock(1) for a fleet.
//
//	dlock run deploy -- ./deploy.sh
//
// dlock help lists its commands, and dlock help run shows the flags and exit codes of dlock run. A
// program that imports further drivers and calls command.Main is a dlock that accepts their URLs.
package main

import (
	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock/command"
	_ "github.com/dlock-go/dlock/etcdbackend"      // etcd://, etcds://
	_ "github.com/dlock-go/dlock/filebackend"      // file:
	_ "github.com/dlock-go/dlock/membackend"       // mem:
	_ "github.com/dlock-go/dlock/memcachedbackend" // memcached://
	_ "github.com/dlock-go/dlock/mysqlbackend"     // mysql://, mariadb://
	_ "github.com/dlock-go/dlock/pgbackend"        // postgres://, postgresql://
	_ "github.com/dlock-go/dlock/redisbackend"     // redis://, rediss:// and more
	_ "github.com/dlock-go/dlock/zkbackend"        // zk://, zookeeper://
)

func main() {
	logging.Disable() // go-redis would print errors that dlock reports, too
	command.Main()
}
