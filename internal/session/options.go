package session

import (
	"fmt"
	"time"
)

// Values of the drivers' Options.Lock, which is the parameter lock of a URL.
const (
	LockRow     = "row"     // a lock is a row of the driver's table
	LockSession = "session" // a lock is a lock of a connection
)

// DefaultTTL is the default of the drivers' Options.TTL, as long as the default TTL of a client.
const DefaultTTL = 30 * time.Second

// CheckOptions returns an error if a driver's Options.Lock has another value, or if its Options.TTL
// is not within the bounds of a session. Both must have their defaults.
func CheckOptions(lock string, ttl, minTTL, maxTTL time.Duration) error {
	if lock != LockRow && lock != LockSession {
		return fmt.Errorf("dlock: invalid lock %.80q: it must be %s or %s",
			lock, LockRow, LockSession)
	}
	if lock == LockSession && (ttl < minTTL || ttl > maxTTL) {
		return fmt.Errorf("dlock: invalid TTL %v of a session: it must be from %v to %v",
			ttl, minTTL, maxTTL)
	}
	return nil
}
