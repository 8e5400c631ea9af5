package membackend

import (
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// There are no other errors to interpret: the space answers every request. errClosed wraps
// ErrUnavailable, because a request of a closed driver is certainly not executed. errBroken is the
// reason that a holder finds in Lease.Err after a Break.
var (
	errClosed = fmt.Errorf("%w: the driver is closed", backend.ErrUnavailable)
	errBroken = fmt.Errorf("%w: broken", backend.ErrLost)
)
