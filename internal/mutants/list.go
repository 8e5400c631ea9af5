package main

import "slices"

// mutants are the guards of all parts, in the order of the table in docs/reliability.md.
var mutants = slices.Concat(
	coreMutants, batchMutants, rosterMutants, memMutants, fileMutants, redisMutants,
	memcachedMutants, zkMutants, etcdMutants, mysqlMutants, pgMutants, sessionMutants,
	commandMutants,
)
