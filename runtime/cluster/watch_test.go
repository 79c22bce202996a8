package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestLost: a watch that fails is said once, and when it goes on; the cluster is lost when the server
// does not come back, or keeps refusing the user.
func TestLost(t *testing.T) {
	t.Parallel()
	refused, denied := errors.New("connection refused"), apierrors.NewUnauthorized("who are you?")
	for name, test := range map[string]struct {
		errs []error // one every 6 seconds
		lost bool
		logs int
	}{
		"restarted":        {errs: []error{refused, refused, refused, nil}, logs: 2},
		"starting":         {errs: []error{refused, denied, denied, nil, denied, nil}, logs: 4},
		"denied":           {errs: []error{denied, denied, denied}, lost: true, logs: 1},
		"down for long":    {errs: slices.Repeat([]error{refused}, 52), lost: true, logs: 1},
		"down for a while": {errs: append(slices.Repeat([]error{refused}, 45), nil), logs: 2},
		"expired watches":  {errs: []error{apierrors.NewResourceExpired("too old"), nil}, logs: 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := &Pods{c: &client{server: "https://192.0.2.1"}, o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, cache: newPodCache(nil)}
			f := &follower{p: p, told: true}
			for _, err := range test.errs {
				f.noteError(t.Context(), err)
				time.Sleep(6 * time.Second)
			}
			if n := strings.Count(log.String(), "\n"); n != test.logs || (p.Lost() != nil) != test.lost {
				t.Errorf("%s: lost: %v; %d lines:\n%s", name, p.Lost(), n, &log)
			}
		})
	}
}
