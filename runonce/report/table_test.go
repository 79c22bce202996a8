package report_test

import (
	"testing"
	"time"

	"github.com/runonce/runonce/runonce/report"
)

func TestElapsed(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0.35s": 350 * time.Millisecond, "9.99s": 9990 * time.Millisecond, "12.3s": 12345 * time.Millisecond,
		"1m5s": 65*time.Second + 200*time.Millisecond, "2h0m0s": 2 * time.Hour,
	} {
		if got := report.Elapsed(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
