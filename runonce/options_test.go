package runonce_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   runonce.Backoff
		want []time.Duration
	}{
		{"default", runonce.DefaultBackoff(), []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 64e9, 128e9, 256e9, 512e9}},
		{"none", runonce.Backoff{Delay: time.Second, Factor: 2}, nil},
		{"even", runonce.Backoff{Delay: time.Second, Factor: 1, Retries: 3}, []time.Duration{1e9, 1e9, 1e9}},
		{"no overflow", runonce.Backoff{Delay: time.Hour, Factor: 1e9, Retries: 3}, []time.Duration{time.Hour, math.MaxInt64, math.MaxInt64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []time.Duration
			for n := 0; ; n++ {
				delay, ok := c.in.At(n)
				if !ok {
					break
				}
				got = append(got, delay)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   runonce.Options
		want []string
	}{
		{"zero", runonce.Options{}, nil},
		{"goal", runonce.Options{Until: "done"}, []string{`--until "done": must be one of running, ready, completed`}},
		{"factor", runonce.Options{Retry: runonce.Backoff{Factor: math.NaN()}}, []string{"--retry-factor NaN: must be a number of at least 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			if err := c.in.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
