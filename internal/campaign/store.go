//go:build unix

package campaign

import "sync"

// store is the resource that the locks protect: two counters for each lock. Each update is a read
// and, later, a write of the next number. The fenced counter refuses a read or a write with a lower
// fence than the highest fence so far. A reader excludes no other reader, so its fence is compared
// with the fences of writers only. The plain counter accepts everything, and so shows the benefit
// of a fence.
type store struct {
	mu        sync.Mutex
	resources map[string]*resource
}

type resource struct {
	highest       uint64 // of all fences
	written       uint64 // the highest fence of a writer
	fenced, plain int64
}

// access is a read or a write from a worker.
type access struct {
	Loop          int    `json:"loop"`
	Try           int    `json:"try"`
	Part          int    `json:"part,omitempty"`
	Name          string `json:"name"`
	Fence         uint64 `json:"fence,string"`
	Write         bool   `json:"write,omitempty"`
	Reader        bool   `json:"reader,omitempty"`
	Fenced, Plain int64  // the values to write
}

// answer is the store's reply to the loop that made the access.
type answer struct {
	Loop          int `json:"loop"`
	Fenced, Plain int64
	Accepted      bool
}

func newStore() *store { return &store{resources: make(map[string]*resource)} }

// do executes a and returns the answer and the event.
func (s *store) do(a access) (answer, Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[a.Name]
	if r == nil {
		r = &resource{}
		s.resources[a.Name] = r
	}
	bar := r.highest
	if a.Reader {
		bar = r.written
	}
	e := Event{
		At: Now(), Op: Read, Loop: a.Loop, Try: a.Try, Part: a.Part, Name: a.Name,
		Fence: a.Fence, Accepted: a.Fence >= bar,
	}
	if e.Accepted {
		r.highest = max(r.highest, a.Fence)
		if !a.Reader {
			r.written = a.Fence
		}
	}
	if a.Write {
		e.Op, e.Fenced, e.Plain = Write, a.Fenced, a.Plain
		r.plain = a.Plain
		if e.Accepted {
			r.fenced = a.Fenced
		}
	}
	return answer{Loop: a.Loop, Fenced: r.fenced, Plain: r.plain, Accepted: e.Accepted}, e
}
