package image

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		in    Policy
		pull  bool
		never bool
	}{
		{"always, absent", Policy{Pull: v1.PullAlways}, true, false},
		{"always, present", Policy{Pull: v1.PullAlways, Present: true}, true, false},
		{"always, given along", Policy{Pull: v1.PullAlways, Present: true, Local: true}, false, false},
		{"always, given along but gone", Policy{Pull: v1.PullAlways, Local: true}, true, false},
		{"if not present, absent", Policy{Pull: v1.PullIfNotPresent}, true, false},
		{"if not present, present", Policy{Pull: v1.PullIfNotPresent, Present: true}, false, false},
		{"never, absent", Policy{Ref: "x", Pull: v1.PullNever}, false, true},
		{"never, present", Policy{Pull: v1.PullNever, Present: true}, false, false},
		{"not defaulted, absent", Policy{}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pull, err := Decide(tt.in)
			if pull != tt.pull || (err != nil) != tt.never {
				t.Errorf("Decide(%+v) = %v, %v", tt.in, pull, err)
			}
		})
	}
}

func TestNeverPullMessage(t *testing.T) {
	t.Parallel()
	_, err := Decide(Policy{Ref: "app:1", Pull: v1.PullNever})
	const want = `Container image "app:1" is not present with pull policy of Never`
	if err == nil || err.Error() != want || failure.Reason(err, "") != "ErrImageNeverPull" || !failure.IsPermanent(err) {
		t.Errorf("%v", err)
	}
}
