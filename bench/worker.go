package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// order is a request to a child, and answer is its reply. Each order has one answer.
type order struct {
	// The first order opens the process.
	Settings Settings
	Kind     kind
	Names    [][]string
	// Each further order is a turn, or it locks the first name and keeps the lock.
	Turn time.Duration
	Hold bool
}

type answer struct {
	Visits [][]byte      // of each contender, as encodeVisits returns them
	Term   time.Duration // of the lock that Hold acquired; 0 if unknown
	Error  string
}

// Serve is the main function of a child that [Subject.Command] has started. It executes the
// orders that it reads from in, writes its answers to out, and returns when in ends. It then
// frees the locks that it holds. Nothing else may write to out. The child should ignore the
// signals that a terminal sends to parent and child alike. Serve returns an error if it cannot
// read an order or write an answer.
func Serve(
	ctx context.Context, in io.Reader, out io.Writer,
	open func(context.Context, Settings) (Process, error),
) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var first order
	if err := orders.Decode(&first); err != nil {
		return fmt.Errorf("bench: the first order: %w", err)
	}
	c, err := newCrew(ctx, open, first.Settings, first.Kind, first.Names)
	if err != nil {
		return answers.Encode(answer{Error: err.Error()})
	}
	defer c.close()
	err = answers.Encode(answer{})
	for err == nil {
		var next order
		if err = orders.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = answers.Encode(c.obey(ctx, next))
		}
	}
	return err
}

func (c *localCrew) obey(ctx context.Context, o order) (a answer) {
	var err error
	if o.Hold {
		a.Term, err = c.hold(ctx)
	} else {
		var visits [][]visit
		visits, err = c.turn(ctx, o.Turn)
		for _, list := range visits {
			a.Visits = append(a.Visits, encodeVisits(list))
		}
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// visitSize is the size of an encoded visit.
const visitSize = 3 * 8

// encodeVisits returns visits in binary form. In JSON, a million of them would be 100 MB.
func encodeVisits(visits []visit) []byte {
	b := make([]byte, 0, len(visits)*visitSize)
	for _, v := range visits {
		for _, at := range []int64{v.Asked, v.Granted, v.Released} {
			b = binary.LittleEndian.AppendUint64(b, uint64(at))
		}
	}
	return b
}

func decodeVisits(b []byte) []visit {
	visits := make([]visit, 0, len(b)/visitSize)
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	for ; len(b) >= visitSize; b = b[visitSize:] {
		visits = append(visits, visit{at(0), at(1), at(2)})
	}
	return visits
}

// hold locks the first name and keeps the lock.
func (c *localCrew) hold(ctx context.Context) (term time.Duration, err error) {
	lease, err := c.contenders[0].mutexes[0].Lock(ctx)
	c.held = lease // dlock does not renew a lease that is unreachable
	if l, ok := lease.(interface{ Deadline() time.Time }); ok && err == nil {
		term = time.Until(l.Deadline())
	}
	return term, err
}

// child is a crew in a separate process.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	answers *json.Decoder
}

// startChild starts a child and waits until it has connected.
func startChild(
	ctx context.Context, cmd *exec.Cmd, s Settings, k kind, names [][]string,
) (*child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}
	if _, err := c.tell(ctx, patience, order{Settings: s, Kind: k, Names: names}); err != nil {
		c.kill()
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// tell sends an order and waits for the answer. It kills a child that does not answer in time.
func (c *child) tell(ctx context.Context, within time.Duration, o order) (a answer, err error) {
	timer := time.AfterFunc(within, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(o.Turn + leave) })()
	if err := c.orders.Encode(o); err != nil {
		return a, fmt.Errorf("child: %w", err)
	}
	if err := c.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("child: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

func (c *child) turn(ctx context.Context, d time.Duration) ([][]visit, error) {
	a, err := c.tell(ctx, d+2*patience, order{Turn: d})
	var visits [][]visit
	for _, list := range a.Visits {
		visits = append(visits, decodeVisits(list))
	}
	return visits, err
}

// hold lets the child lock its first name and keep the lock.
func (c *child) hold(ctx context.Context) (term time.Duration, err error) {
	a, err := c.tell(ctx, patience, order{Hold: true})
	return a.Term, err
}

// kill is kill -9: the child frees nothing.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// close lets the child free its locks and end, unless it was killed.
func (c *child) close() error {
	_ = c.stdin.Close()
	timer := time.AfterFunc(2*leave, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	return c.cmd.Wait()
}
