package etcdbackend

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A member is silent after a request without any answer, until it answers or a while is over.
func TestMemberIsSilent(t *testing.T) {
	unanswered := balancer.DoneInfo{Err: status.Error(codes.DeadlineExceeded, "")}
	cancelled := balancer.DoneInfo{Err: status.Error(codes.Canceled, "")}
	ended := balancer.DoneInfo{Err: unanswered.Err, BytesReceived: true}
	refused := balancer.DoneInfo{Err: errors.New("refused"), BytesReceived: true}
	for name, row := range map[string]struct {
		info   balancer.DoneInfo
		after  time.Duration
		silent bool
	}{
		"no answer in time":       {unanswered, 0, true},
		"no answer a while ago":   {unanswered, pingTime + pingTimeout, false},
		"a request was cancelled": {cancelled, 0, false},
		"a stream ended in time":  {ended, 0, false},
		"a refusal":               {refused, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMember()
			m.done(row.info)
			time.Sleep(row.after)
			if got := m.isSilent(); got != row.silent {
				t.Errorf("%s: silent is %v, want %v", name, got, row.silent)
			}
			m.done(balancer.DoneInfo{BytesReceived: true})
			if m.isSilent() {
				t.Errorf("%s: the member is silent after an answer", name)
			}
		})
	}
}
