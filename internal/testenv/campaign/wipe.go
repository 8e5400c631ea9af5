//go:build unix

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/testenv"
)

// wipeTimeout limits each deletion. A server that does not answer within that time ends the
// campaign.
const wipeTimeout = 10 * time.Second

// must ends the fault if err is not nil.
func must(tb testenv.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("wipe: %v", err)
	}
}

func wipeContext(tb testenv.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.Context(), wipeTimeout)
}

func wipeRedis(tb testenv.TB, addr string) {
	ctx, cancel := wipeContext(tb)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	must(tb, c.FlushAll(ctx).Err())
}

func wipeCluster(tb testenv.TB, addrs []string) {
	ctx, cancel := wipeContext(tb)
	defer cancel()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	must(tb, c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		return c.FlushAll(ctx).Err()
	}))
}

func wipeMemcached(tb testenv.TB, addr string) {
	c, err := net.DialTimeout("tcp", addr, wipeTimeout)
	must(tb, err)
	defer c.Close()
	_, err = c.Write([]byte("flush_all\r\n"))
	must(tb, errors.Join(err, c.SetDeadline(time.Now().Add(wipeTimeout))))
	answer, err := bufio.NewReader(c).ReadString('\n')
	must(tb, err)
	if strings.TrimSpace(answer) != "OK" {
		tb.Fatalf("wipe: %q", answer)
	}
}

func wipeEtcd(tb testenv.TB, addrs []string) {
	ctx, cancel := wipeContext(tb)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, DialTimeout: wipeTimeout, Logger: zap.NewNop(),
	})
	must(tb, err)
	defer c.Close()
	_, err = c.Delete(ctx, "/dlock/", clientv3.WithPrefix())
	must(tb, err)
}

// wipeZooKeeper deletes all nodes of locks. Nodes that workers create at the same time stay.
func wipeZooKeeper(tb testenv.TB, addrs []string) {
	c, _, err := zk.Connect(addrs, wipeTimeout, zk.WithLogInfo(false))
	must(tb, err)
	defer c.Close()
	must(tb, deleteBelow(c, "/dlock"))
}

// deleteBelow deletes all nodes below a node. It ignores concurrent changes by clients.
func deleteBelow(c *zk.Conn, path string) error {
	names, _, err := c.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	for _, name := range names {
		child := path + "/" + name
		err = errors.Join(err, deleteBelow(c, child))
		failed := c.Delete(child, -1)
		if !errors.Is(failed, zk.ErrNoNode) && !errors.Is(failed, zk.ErrNotEmpty) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

func wipeMySQL(tb testenv.TB, rawURL string) {
	ctx, cancel := wipeContext(tb)
	defer cancel()
	_, rest, _ := strings.Cut(rawURL, "://root@")
	addr, _, _ := strings.Cut(rest, "/")
	db, err := sql.Open("mysql", "root@tcp("+addr+")/dlock")
	must(tb, err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "DELETE FROM dlock")
	must(tb, err)
}

func wipePostgres(tb testenv.TB, rawURL string) {
	ctx, cancel := wipeContext(tb)
	defer cancel()
	conn, err := pgx.Connect(ctx, rawURL)
	must(tb, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "DELETE FROM dlock")
	must(tb, err)
}

func wipeFiles(tb testenv.TB, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	must(tb, err)
	for _, file := range files {
		must(tb, os.Remove(file))
	}
}
