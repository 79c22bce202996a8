package runonce_test

import (
	"testing"

	"github.com/runonce/runonce/runonce"
)

func TestRemoval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome                      runonce.Outcome
		all, failed, unlessHasFailed bool
	}{
		{"", true, true, true}, // of a run that was killed
		{runonce.Running, true, false, true},
		{runonce.Ready, true, false, true},
		{runonce.Succeeded, true, false, true},
		{runonce.Failed, true, true, false},
		{runonce.TimedOut, true, true, false},
		{runonce.Canceled, true, true, true},
		{runonce.Preempted, true, true, true},
	} {
		for removal, removed := range map[runonce.Removal]bool{
			runonce.RemoveNone: false, runonce.RemoveAll: c.all, runonce.RemoveFailed: c.failed, runonce.KeepFailed: c.unlessHasFailed,
		} {
			if got := removal.Includes(c.outcome); got != removed {
				t.Errorf("%q of a pod that is %q: %t", removal, c.outcome, got)
			}
		}
	}
}
