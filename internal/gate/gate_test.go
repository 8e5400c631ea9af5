package gate

import (
	"sync"
	"sync/atomic"
	"testing"
)

type place = Place[int, string]

func TestGateServesInOrder(t *testing.T) {
	t.Parallel()
	var g Gate[int, string]
	var a, b, c place
	if !g.Join("x", &a, 1) {
		t.Fatal("the first place is not the head")
	}
	if g.Join("x", &b, 2) || g.Join("x", &c, 3) {
		t.Fatal("a later place is the head")
	}
	if g.Pass(&a, "no", func(next int) bool { return next != 2 }) {
		t.Fatal("Pass passed to a waiter that the offer refused")
	}
	if !g.Pass(&a, "from a", func(next int) bool { return next == 2 }) || <-b.Turn() != "from a" {
		t.Fatal("the second did not receive")
	}
	g.Leave(&a, "again") // no effect: it has left
	g.Leave(&b, "from b")
	if got := <-c.Turn(); got != "from b" {
		t.Fatalf("the third received %q", got)
	}
	if g.Pass(&c, "nobody", func(int) bool { return true }) {
		t.Fatal("Pass passed to nobody")
	}
	if g.Leave(&c, ""); len(g.queues) != 0 {
		t.Fatalf("%d queues remain", len(g.queues))
	}
}

func TestGateAbandon(t *testing.T) {
	t.Parallel()
	var g Gate[int, string]
	var a, b, c, d place
	g.Join("x", &a, 1)
	g.Join("x", &b, 2)
	g.Join("x", &c, 3)
	if _, head := g.Abandon(&b); head {
		t.Fatal("a place in the middle was told that it is the head")
	}
	g.Leave(&a, "baton")
	if turn, head := g.Abandon(&c); !head || turn != "baton" {
		t.Fatalf("Abandon of the head = %q, %v: the baton is dropped", turn, head)
	}
	if g.TryJoin("x", &d, 4) {
		t.Fatal("TryJoin passed a queue with a head")
	}
	g.Leave(&c, "")
	if !g.TryJoin("x", &d, 4) {
		t.Fatal("TryJoin refused an empty queue")
	}
}

// TestGateRace loses no turn when waiters give up in the instant of being served.
func TestGateRace(t *testing.T) {
	t.Parallel()
	var g Gate[int, string]
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 200 {
				var p place
				if !g.Join("x", &p, i) {
					select {
					case <-p.Turn():
					default:
						if _, head := g.Abandon(&p); !head {
							continue
						}
					}
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d heads at once", n)
				}
				inside.Add(-1)
				g.Leave(&p, "")
			}
		})
	}
	wg.Wait()
	if len(g.queues) != 0 {
		t.Fatalf("%d queues remain", len(g.queues))
	}
}
