package memcachedbackend

import "time"

const (
	// tickError is the maximum time by which the server ends a value early.
	//
	// The server adds the requested seconds to a time that it reads once a second, so that time is
	// up to a second old. It also drops the fraction of that time. Its ticks drift, and a pause
	// moves them: two successive readings can then differ by two seconds.
	tickError = 2 * time.Second
	// expired is an expiry that ends a value at once.
	expired = -1
)

// grantedTTL returns the TTL of a grant: ttl, rounded up to whole seconds.
func grantedTTL(ttl time.Duration) time.Duration {
	return (ttl + time.Second - 1) / time.Second * time.Second
}

// expiry returns the seconds to request from the server, so that it keeps a value for at least
// grantedTTL(ttl).
func expiry(ttl time.Duration) int32 { return int32((grantedTTL(ttl) + tickError) / time.Second) }
