package testenv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestPostgresPair checks that the commits of a synchronous pair wait for the standby, also after a
// failover, and that the commits of an asynchronous pair do not.
func TestPostgresPair(t *testing.T) {
	for _, synchronous := range []bool{true, false} {
		t.Run(fmt.Sprintf("synchronous=%t", synchronous), func(t *testing.T) {
			p := NewPostgresPair(t, synchronous)
			p.Pause(t)()
			for range 2 {
				former := p.Primary()
				p.Restart(t)
				if p.Primary() == former || p.Standby() != former {
					t.Errorf("the former primary %s is still the primary", former.Name)
				}
				if _, err := p.instance.Await(prompt); err != nil {
					t.Error(err)
				}
				resume := p.Standby().Pause(t)
				if waits := commit(t, p.Primary()) != nil; waits != synchronous {
					t.Errorf("a commit waits for the standby: %t", waits)
				}
				resume()
				if err := commit(t, p.Primary()); err != nil {
					t.Errorf("a commit: %v", err)
				}
			}
		})
	}
}

// commit makes a change. A commit that waits for a standby is given up.
func commit(t *testing.T, s *Server) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = conn.Exec(ctx, `SELECT pg_logical_emit_message(true, 'test', '')`)
	return err
}
