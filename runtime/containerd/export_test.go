package containerd

import (
	"context"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// SetTimeouts makes the OCI runtime's commands end sooner.
func (e *Engine) SetTimeouts(start, end time.Duration) {
	e.timeouts = runtimeTimeouts{start: start, end: end}
}

// LeaveTrial does what a process does that is killed during a trial.
func LeaveTrial(ctx context.Context, program, root string, spec *specs.Spec) error {
	t := trial{program: program, dir: filepath.Join(root, trialDir)}
	if err := t.writeBundle(spec); err != nil {
		return err
	}
	return t.create(ctx, spec)
}
