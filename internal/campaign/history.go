//go:build unix

package campaign

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Op is the kind of an Event.
type Op string

// The Ops of a worker, of its process, of the resource, and of the faults.
const (
	Ask      Op = "ask"      // Lock is called
	Granted  Op = "granted"  // Lock has returned a lease
	Refused  Op = "refused"  // Lock has returned an error
	Lost     Op = "lost"     // the holder has detected the end of its lease without an Unlock
	Unlock   Op = "unlock"   // Unlock is called
	Unlocked Op = "unlocked" // Unlock has returned

	Export     Op = "export"     // Export is called
	Exported   Op = "exported"   // Export has returned
	Downgrade  Op = "downgrade"  // Downgrade is called
	Downgraded Op = "downgraded" // Downgrade has returned

	Lag   Op = "lag"   // a goroutine ran late
	Chain Op = "chain" // the third of three goroutines that wake each other ran late

	Started Op = "started" // a process has connected
	Killed  Op = "killed"  // a process is about to be killed
	Exited  Op = "exited"  // a process has ended

	Read  Op = "read"
	Write Op = "write"

	Begin Op = "begin" // a fault begins
	Done  Op = "done"  // the fault is in force; a fault without a duration is over
	End   Op = "end"   // a fault is over

	Missed Op = "missed" // a fault had no effect

	Answer Op = "answer" // a request of the engine took long

	RoundBegins Op = "round"
	Finding     Op = "finding" // a violation that the engine found itself
)

// Engine is the Worker of events that belong to no worker.
const Engine = -1

// Event is one line of a history.
type Event struct {
	At     Instant `json:"at"`
	Op     Op      `json:"op"`
	Worker int     `json:"worker"`
	Life   int     `json:"life,omitempty"` // the number of the worker's process
	Loop   int     `json:"loop,omitempty"`
	Try    int     `json:"try,omitempty"`  // numbers the attempts of a loop
	Part   int     `json:"part,omitempty"` // numbers the names of an attempt
	Round  int     `json:"round,omitempty"`

	Name    string        `json:"name,omitempty"`
	Fence   uint64        `json:"fence,omitempty,string"`
	Error   string        `json:"error,omitempty"`
	Reader  bool          `json:"reader,omitempty"`
	Limited bool          `json:"limited,omitempty"` // has a deadline of some ms
	Handle  string        `json:"handle,omitempty"`  // identifies what is exported or adopted
	Late    time.Duration `json:"late,omitempty"`

	Accepted bool  `json:"accepted,omitempty"`
	Fenced   int64 `json:"fenced,omitempty"`
	Plain    int64 `json:"plain,omitempty"`

	Fault int  `json:"fault,omitempty"` // numbers the injections, from 1 on
	Kind  Kind `json:"kind,omitempty"`
	Rule  Rule `json:"rule,omitempty"`
}

// History is the record of a campaign.
type History struct {
	Settings Settings
	Plan     Plan
	Version  string // of the server
	Ended    Instant
	Cut      bool `json:",omitempty"` // the campaign was interrupted
	Events   []Event
}

// Names returns the names of all locks that were used.
func (h *History) Names() []string {
	names := make(map[string]bool)
	for _, e := range h.Events {
		if e.Op == Ask {
			names[e.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// header is the first line of a file. All other lines are Events.
type header struct {
	Settings Settings
	Plan     Plan
	Version  string
	Ended    Instant
	Cut      bool
}

// WriteTo writes h as lines of JSON.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	out := json.NewEncoder(w)
	err := out.Encode(header{h.Settings, h.Plan, h.Version, h.Ended, h.Cut})
	for _, e := range h.Events {
		err = errors.Join(err, out.Encode(e))
	}
	return 0, err
}

// Save writes h into a file.
func (h *History) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	_, err = h.WriteTo(w)
	return errors.Join(err, w.Flush(), f.Close())
}

// Load reads a file that Save has written.
func Load(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := json.NewDecoder(bufio.NewReader(f))
	var head header
	if err := in.Decode(&head); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h := &History{
		Settings: head.Settings, Plan: head.Plan, Version: head.Version,
		Ended: head.Ended, Cut: head.Cut,
	}
	for {
		var e Event
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		h.Events = append(h.Events, e)
	}
}

// recorder collects events from many goroutines.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) record(e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// sorted returns the events so far, ordered by time.
func (r *recorder) sorted() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}
