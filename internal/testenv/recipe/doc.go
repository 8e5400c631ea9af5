// Package recipe has one recipe for each kind of test server. A recipe has only facts: the program,
// its flags, the form of its URL and the request that returns its version. Package server and
// package group start servers by these facts, the same way for all of them. Package testenv gives
// them to tests.
//
// # Rules for recipes
//
// All servers follow the same rules, so that a test does not depend on the server:
//
//   - A server keeps every acknowledged write when it is killed, because it writes its log before
//     it answers. It does not wait for the disk: waiting would help only in a crash of the machine,
//     and would cost each write some milliseconds. An etcd server waits, as it does by default, and
//     memcached keeps nothing.
//   - The flags suit the official image, the image of scripts/images.sh and the Debian package.
//   - A server as a process keeps everything in its own folder.
//   - The probe never retries, and succeeds only if the server can serve: a member of an ensemble
//     must have a leader.
//   - The version begins with the product's name, because some products imitate another one:
//     MariaDB must not pass for MySQL, nor Valkey for Redis.
//
// # A new server
//
// A server Foo needs a file foo.go here with a function Foo, a folder images/foo, and its
// functions and its line in the table of servers.go in package testenv. A test of package testenv
// names the missing part.
package recipe
