package image

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	probe := func(period, timeout, failures int32, command ...string) *v1.Probe {
		return &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}},
			PeriodSeconds: period, TimeoutSeconds: timeout, SuccessThreshold: 1, FailureThreshold: failures,
		}
	}
	for _, tt := range []struct {
		name string
		in   *engine.Healthcheck
		want *v1.Probe
	}{
		{"none", nil, nil},
		{"that of the base image", &engine.Healthcheck{Interval: time.Second}, nil},
		{"turned off", &engine.Healthcheck{Test: []string{"NONE"}}, nil},
		{"no command", &engine.Healthcheck{Test: []string{"CMD"}}, nil},
		{"unknown", &engine.Healthcheck{Test: []string{"HTTP", "/"}}, nil},
		{"defaults", &engine.Healthcheck{Test: []string{"CMD", "/bin/check", "a b"}}, probe(30, 30, 3, "/bin/check", "a b")},
		{"shell", &engine.Healthcheck{Test: []string{"CMD-SHELL", "exit 0 || true"}}, probe(30, 30, 3, "/bin/sh", "-c", "exit 0 || true")},
		{"the image's shell", &engine.Healthcheck{Test: []string{"CMD-SHELL", "x"}, Shell: []string{"/bin/bash", "-ec"}}, probe(30, 30, 3, "/bin/bash", "-ec", "x")},
		{
			"all, rounded up", &engine.Healthcheck{Test: []string{"CMD", "x"}, Interval: 1500 * time.Millisecond, Timeout: time.Millisecond, Retries: 5},
			probe(2, 1, 5, "x"),
		},
	} {
		if diff := cmp.Diff(tt.want, Healthcheck(tt.in)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
