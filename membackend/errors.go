package membackend

import (
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// There are no other errors to interpret: the space answers every request.
var (
	errClosed = fmt.Errorf("%w: the driver is closed", backend.ErrUnavailable)
	errBroken = fmt.Errorf("%w: broken", backend.ErrLost)
)
