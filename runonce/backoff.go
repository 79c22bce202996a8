package runonce

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Backoff is a schedule of retries that wait ever longer.
type Backoff struct {
	Delay   time.Duration // before the first retry
	Factor  float64       // by which each delay is longer than the one before; at least 1
	Retries int           // how many; also how often a container may crash
}

// DefaultBackoff returns the schedule of the kubelet's run-once mode
// (pkg/kubelet/runonce.go of Kubernetes 1.30): 1 s, doubled each time, 10 retries.
func DefaultBackoff() Backoff {
	return Backoff{Delay: time.Second, Factor: 2, Retries: 10}
}

// Validate returns every error in the schedule, joined.
func (b Backoff) Validate() error {
	if b == (Backoff{}) {
		return nil
	}
	var errs []error
	if b.Delay < 0 {
		errs = append(errs, fmt.Errorf("retry delay %s: must not be negative", b.Delay))
	}
	if !(b.Factor >= 1) || math.IsInf(b.Factor, 0) {
		errs = append(errs, fmt.Errorf("retry factor %g: must be a number of at least 1", b.Factor))
	}
	if b.Retries < 0 {
		errs = append(errs, fmt.Errorf("%d retries: must not be negative", b.Retries))
	}
	return errors.Join(errs...)
}

// At returns the time to wait before the n-th retry, from 0; false when there are no more. A
// delay that would be longer than time.Duration can say stays at its longest.
func (b Backoff) At(n int) (time.Duration, bool) {
	d := float64(b.Delay)
	for range n {
		if d >= math.MaxInt64 {
			break
		}
		d *= b.Factor
	}
	if d >= math.MaxInt64 {
		return math.MaxInt64, n < b.Retries
	}
	return time.Duration(d), n < b.Retries
}
