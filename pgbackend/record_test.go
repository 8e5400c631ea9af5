package pgbackend

import (
	"testing"
	"time"
)

// noRow has the columns of a name without a row, read at this time.
type noRow time.Time

// Scan implements pgx.Row.
func (now noRow) Scan(to ...any) error {
	*to[0].(*time.Time) = time.Time(now)
	return nil
}

// TestFenceOfAWrongClock reads a name without a row from a server with a clock in the past: fences
// and versions that are not positive would be no grants and no changes.
func TestFenceOfAWrongClock(t *testing.T) {
	t.Parallel()
	var r row
	err := r.scan(noRow(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)))
	if err != nil || r.fence <= 0 || r.version <= 0 {
		t.Errorf("the fence is %d, the version is %d, error %v", r.fence, r.version, err)
	}
}
