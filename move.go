package dlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Downgrade makes the lease of a writer the lease of a reader, in one step: no other writer can
// have the lock between the two. The fence stays the same. It works for the leases of
// [Client.Mutex], too, because a Mutex is the write side of the [RWMutex] of its name.
//
// It blocks for one request, for at most the TTL or 5 s, whichever is less, or until ctx ends. The
// lease stays held if Downgrade fails, unless the error is ErrLost, ErrNotHeld or ErrClosed:
//
//   - ErrUnsupported if the backend cannot do it.
//   - ErrUnavailable if the request was not executed.
//   - ErrUncertain if the server did not answer. Readers may be admitted; call Downgrade again.
//   - another error for the lease of a reader or a permit, for a reentrant lock that the caller
//     holds more than once, and during another Downgrade or Export of the lease.
func (l *Lease) Downgrade(ctx context.Context) error {
	h := l.ref.Lease()
	if h == nil {
		return nil
	}
	return l.client.wrap("downgrade", h.Lock().Name, h.Downgrade(ctx))
}

// Export ends the lease, whose Err is then ErrNotHeld, without releasing the lock: the handle that
// it returns is for [Client.Adopt], in this process or in another one. No other client gets the
// lock until then, for one TTL and the lock-delay at most, even if this client is closed and its
// process ends. A minimum and a maximum hold end with Export.
//
// A handle is a secret, because it is the right to the lock. It is a text without spaces that
// cannot be guessed, and it can be adopted once. Pass it through a pipe or the environment: other
// users of the machine can read the arguments of a command. It works for a client of the same
// backend with the same prefix.
//
// Export blocks for one request, for at most the TTL or 5 s, whichever is less, or until ctx ends.
// It returns ErrLost, ErrNotHeld or ErrClosed if the lease has ended before, and ErrUnsupported if
// the backend cannot do it (see Capabilities.Move). It also returns an error
//
//   - for a lease that shares its grant with other leases,
//   - after a Downgrade with ErrUncertain,
//   - during another Downgrade or Export of the lease,
//   - for some seconds after a Lock that the server did not answer at first.
//
// The lease is still held then, and if the request was not executed, as with ErrUnavailable. With
// ErrUncertain the lease has ended, and the client releases the lock in the background.
func (l *Lease) Export(ctx context.Context) (handle string, err error) {
	h := l.ref.Lease()
	if h == nil {
		return "", errors.New("dlock: the lease is a fake")
	}
	lock := h.Lock()
	x, err := h.Export(ctx)
	if err != nil {
		return "", l.client.wrap("export", lock.Name, err)
	}
	return exported{
		Backend: driverName(l.client.driver), Prefix: l.client.prefix, Name: lock.Name,
		Mode: x.Mode, Limit: lock.Limit, TTL: lock.TTL, Handoff: x.Handoff, Ticket: x.Ticket,
	}.handle(), nil
}

// Adopt acquires the lock behind a handle of [Lease.Export], with its TTL. The fence of the new
// lease is the same as the fence of the exported lease, or higher. It makes one attempt, which
// takes at most the TTL or 5 s, whichever is less, or until ctx ends. All other options of the
// client apply. The lease takes no part in local hand-offs.
//
// It returns ErrLost if the handle was adopted before or its term is over, ErrUnavailable if the
// request was not executed, and ErrUncertain if the server did not answer. It returns another error
// for a text that is not a handle, and for the handle of another backend or another prefix. It
// returns ErrUnsupported if the backend cannot do it.
//
// After ErrUncertain the client undoes, in the background, what the request may have done under its
// new owner. If the request was executed, the handle is used up, and the client releases the lock.
// If the request was never executed, the handle is still good until its term ends.
func (c *Client) Adopt(ctx context.Context, handle string) (*Lease, error) {
	const op = "adopt"
	x, err := parseHandle(handle)
	if err != nil {
		return nil, c.wrap(op, "", err)
	}
	if own := driverName(c.driver); x.Backend != own || x.Prefix != c.prefix {
		return nil, c.wrap(op, x.Name, fmt.Errorf("the handle is of the backend %q with the "+
			"prefix %q, and this client has %q with %q", x.Backend, x.Prefix, own, c.prefix))
	}
	m, err := c.kind(op, x.Mode, x.Limit, x.Name, []Option{WithTTL(x.TTL)})
	if err != nil {
		return nil, err
	}
	lease := &Lease{client: c}
	began := c.engine.NoteAttempt(ctx, &m.lock)
	err = c.wrap(op, x.Name, c.engine.Adopt(ctx, &m.lock, x.Ticket, x.Handoff, &lease.ref))
	c.engine.NoteAcquired(ctx, &m.lock, &lease.ref, err, began)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// exported is the content of a handle. The names of its fields in JSON must not change: a process
// of another version may adopt the handle, for example after an upgrade.
type exported struct {
	Backend string        `json:"b"`
	Prefix  string        `json:"p,omitempty"`
	Name    string        `json:"n"`
	Mode    backend.Mode  `json:"m"`
	Limit   int           `json:"l,omitempty"`
	TTL     time.Duration `json:"t"`
	Handoff int           `json:"h,omitempty"` // the number of the exported lease's hand-off
	Ticket  string        `json:"k"`           // the driver's
}

// handlePrefix begins each handle, so that people recognize one.
const handlePrefix = "dlock1."

// handle returns the text for the user.
func (x exported) handle() string {
	text, _ := json.Marshal(x) // strings and numbers: it cannot fail
	return handlePrefix + base64.RawURLEncoding.EncodeToString(text)
}

// parseHandle is the inverse of handle. An error does not repeat the text, which is a secret.
func parseHandle(handle string) (x exported, err error) {
	notOne := errors.New("the text is not a handle of Lease.Export, or not a whole one")
	text, ok := strings.CutPrefix(handle, handlePrefix)
	if !ok {
		return x, notOne
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(decoded, &x) != nil || !x.isPlausible() {
		return exported{}, notOne
	}
	return x, nil
}

// isPlausible reports whether Export may have returned x. The driver checks the ticket.
func (x *exported) isPlausible() bool {
	kinds := map[backend.Mode]bool{
		backend.Exclusive: x.Limit == 0,
		backend.Shared:    x.Limit == 0,
		backend.Permit:    x.Limit > 0 && x.Limit <= maxLimit,
	}
	return kinds[x.Mode] && validate(x.Name) == nil && x.TTL > 0 && x.Ticket != "" &&
		x.Handoff >= 0 && x.Handoff <= maxHandoff
}
