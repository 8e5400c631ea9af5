// Package group starts several servers that act as one. It has no knowledge of any product and of
// tests: failures are errors.
//
// # Two forms
//
// An [Ensemble] has three equal members that elect a leader, and serves as long as two of them do:
// etcd, ZooKeeper. Its members get addresses at which they reach each other. In containers these
// are in a network of their own, so that a test can isolate a member from the other members, but
// not from its clients. Each member is a [server.Instance] with its own URL. The ensemble has a URL
// of all members, and can be given by URL like a single server.
//
// A [Group] has members of different roles, with data or without, that announce their own addresses
// to clients: a Redis cluster, a Redis master with replicas and sentinels, or a PostgreSQL server
// with a standby. Its members listen at the same address inside and outside of their containers. A
// Group is the [runner.Control] of a [server.Instance] which stands for all of them: to pause the
// instance pauses each member. A member can be replaced by another one, which has its own data.
//
// # Ready
//
// A start returns when each member answers its own probe. For a Group the probe of the instance
// must succeed, too: it checks that the members have found each other.
//
// The members run in containers if there is Docker and an image, otherwise as processes, like
// single servers. Package recipe has the recipes.
package group
