// Package testenv gives tests real servers, networks that can be broken, and the life of a test
// process. This is the page on the test environment. Only tests import the package, and the
// programs in its subfolders.
//
// # How a test gets a server
//
//	s := testenv.Redis(t)                            // shared by all tests of the package
//	s := testenv.Alone(t, testenv.Redis)             // for this test, which may stop it
//	s := testenv.NewRedis(t, "--maxmemory", "8mb")   // for this test, with arguments
//	d, err := testenv.Open(t.Context(), s.URL)
//
// servers.go has these functions for all servers. A server comes from the first of these sources
// that exists:
//
//  1. the URL in the environment, for example DLOCK_TEST_REDIS_URL. Only shared servers and Alone
//     use it, because the other functions start a server with special arguments;
//  2. Docker, if it answers within 30 seconds. The image is DLOCK_TEST_IMAGE_REDIS if it is set,
//     otherwise the image that scripts/images.sh has built, otherwise the official image, which is
//     pulled if necessary;
//  3. the server's program on PATH or in /usr/sbin, started as a child process.
//
// A test without a server fails, and its message gives instructions. With DLOCK_TEST_ALLOW_SKIP=1
// the test is skipped. A function returns when the server answers a request of its own protocol.
//
// [EtcdEnsemble] and [ZooKeeperEnsemble] return three servers that form a cluster, [RedisCluster]
// and [RedisSentinel] return several Redis servers that act as one, [NewPostgresPair] starts a
// primary and its standby. They come from the same sources, but no URL gives a pair.
//
// # What is shared
//
// Functions with the name of a server return the one server of that kind that all tests of the
// process use. The first call starts it. Tests share it in parallel, so a test must not stop it,
// change its settings or expect that the server is empty. Each test uses names of its own.
//
// [Alone] and the functions that begin with New start a server for one test, which may stop it. The
// server is removed when the test ends. It costs memory and the time of a start.
//
// An earlier test may have stopped members of an ensemble or a group. The functions for ensembles
// wait until all members answer. A test that uses a group calls [RedisGroup.Await].
//
// # Faults
//
//	Server      Pause, Kill, Start, Restart, Wipe
//	Ensemble    Pause, Restart; Kill and Isolate for one member
//	RedisGroup  Pause, Kill, Start, Restart; Take for one member
//	Pair        Pause, Kill, Start; Restart is a failover of Promote and Rejoin; Unfollow
//	Proxy       Cut, Delay, DropReply, Reset, Latency: faults of the network
//
// A paused server keeps its connections open and does not answer. A killed server loses nothing
// that it had acknowledged, apart from memcached. Each fault that lasts is undone by the function
// that its method returns, and at the end of the test. A pair belongs to its test, and keeps its
// new roles. A server that was given by URL cannot be stopped: a test that tries is skipped.
//
// A [Harness] combines a server and a [Proxy] for package conformance. Package faultproxy describes
// the faults of the network.
//
// # Leftovers
//
// [Main] stops the shared servers at the end of the test process, and fails if goroutines are left.
// A test's own server, proxy and files end with the test. If the process is killed, the kernel
// kills child processes (on Linux), and the next process that uses Docker removes the containers
// and networks. Package runner has the details.
//
// # Environment variables
//
//	DLOCK_TEST_NAME_URL       the server to use. NAME is REDIS, VALKEY, REDIS_CLUSTER,
//	                          REDIS_SENTINEL, MEMCACHED, ZOOKEEPER, ZOOKEEPER_3, ETCD, ETCD_3,
//	                          MYSQL, MARIADB or POSTGRES
//	DLOCK_TEST_IMAGE_NAME     the image to start. NAME is a folder of images
//	DLOCK_TEST_ALLOW_SKIP     1: a test without a server is skipped, and does not fail
//	DLOCK_TEST_IMAGE_JOBS     scripts/images.sh builds that many images at a time, by default 4
//	DLOCK_TEST_DEBIAN_MIRROR  scripts/images.sh takes packages from there
//	DOCKER_HOST, DOCKER_…     where Docker is, as for the docker command
//
// Package runner sets TESTCONTAINERS_RYUK_DISABLED if the image of the reaper of testcontainers-go
// is missing. It sets TESTCONTAINERS_HOST_OVERRIDE, unless it is set, if /.dockerenv exists and
// Docker has a unix socket.
//
// # Announcing
//
// Every test writes the server that it uses to its log, in the form of package announce. The report
// prints one row per server. The cases of a row belong to the top-level tests named
// TestConformance… that have announced the server. So there is one such test per server:
// TestConformance, TestConformanceValkey, TestConformanceEnsemble.
//
// # Rooms
//
// Only this package has functions for tests. The packages below it return errors instead. Each
// imports only packages that follow it in this list:
//
//	testenv   functions for tests: servers, sharing, faults, proxies, Main
//	recipe    facts about each kind of server, one file per product
//	group     several servers that act as one
//	server    one server: given by URL or started, awaited, probed
//	runner    a program in a container or as a child process
//	images    the container images
//	pki       certificates and servers with TLS
//
// The programs and the packages for special tests import this package:
//
//	raw, tlstest, failover           tests of drivers without the core, of TLS, of ensembles
//	campaign, benchmarks             programs with servers, see [Program]
//	packages, report                 programs of scripts/test.sh
//
// A new server needs a file in recipe, a folder in images, its functions and a line of the table in
// servers.go, and a test TestConformance… of its driver. TestEveryServerIsComplete names the
// missing part of the first three. For one run with another version of a server,
// DLOCK_TEST_IMAGE_REDIS=redis:7 is enough.
package testenv
