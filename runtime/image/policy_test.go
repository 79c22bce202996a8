package image

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		in    Policy
		want  Action
		never bool
	}{
		{"always, absent", Policy{Pull: v1.PullAlways}, Pull, false},
		{"always, present", Policy{Pull: v1.PullAlways, Present: true}, Pull, false},
		{"always, given along", Policy{Pull: v1.PullAlways, Present: true, Local: true}, Use, false},
		{"always, given along but gone", Policy{Pull: v1.PullAlways, Local: true}, Pull, false},
		{"if not present, absent", Policy{Pull: v1.PullIfNotPresent}, Pull, false},
		{"if not present, present", Policy{Pull: v1.PullIfNotPresent, Present: true}, Use, false},
		{"never, absent", Policy{Ref: "x", Pull: v1.PullNever}, Use, true},
		{"never, present", Policy{Pull: v1.PullNever, Present: true}, Use, false},
		{"not defaulted, absent", Policy{}, Pull, false},

		{"missing before always", Policy{Pull: v1.PullAlways, Mode: Missing, Present: true}, Use, false},
		{"missing before never", Policy{Pull: v1.PullNever, Mode: Missing}, Pull, false},
		{"always before never", Policy{Pull: v1.PullNever, Mode: Always, Present: true}, Pull, false},
		{"always, but given along", Policy{Mode: Always, Present: true, Local: true}, Use, false},
		{"never before always", Policy{Pull: v1.PullAlways, Mode: Never}, Use, true},
		{"never before always, present", Policy{Pull: v1.PullAlways, Mode: Never, Present: true}, Use, false},
		{"newer, absent", Policy{Pull: v1.PullNever, Mode: Newer}, Pull, false},
		{"newer, present", Policy{Ref: "x:1", Pull: v1.PullNever, Mode: Newer, Present: true}, PullNewer, false},
		{"newer, given along", Policy{Ref: "x:1", Mode: Newer, Present: true, Local: true}, Use, false},
		{"newer, by digest", Policy{Ref: "x:1@sha256:0", Mode: Newer, Present: true}, Use, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Decide(tt.in)
			if got != tt.want || (err != nil) != tt.never {
				t.Errorf("Decide(%+v) = %v, %v", tt.in, got, err)
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
	other := errors.New("it is for linux/arm64, not for linux/amd64")
	if _, err := Decide(Policy{Ref: "app:1", Pull: v1.PullNever, Absent: other}); err == nil || err.Error() != want+": there is one of that name, but "+other.Error() || !errors.Is(err, other) {
		t.Errorf("%v", err)
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	const a, b = "sha256:a", "sha256:b"
	for _, tt := range []struct {
		ref, stored, digest string
		want                bool
	}{
		{"h/x:1", "h/x:1", a, true},
		{"h/x:1", "h/x:2", a, false},
		{"h/x@" + a, "h/x:1", a, true},
		{"h/x@" + a, "h/x@" + a, a, true},
		{"h/x@" + a, "h/x:1", b, false},
		{"h/x@" + a, "h/y:1", a, false},
		{"h:5000/x@" + a, "h:5000/x:1", a, true},
		{"h:5000/x@" + a, "h:5000/x@" + a, a, true},
	} {
		if got := Same(tt.ref, tt.stored, tt.digest); got != tt.want {
			t.Errorf("Same(%q, %q, %q) = %v", tt.ref, tt.stored, tt.digest, got)
		}
	}
}
