// Package pgbackend is dlock's driver for PostgreSQL.
package pgbackend
