package containerd

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/runonce/runonce/internal/failure"
)

// faster is the OCI runtime that takes half of runc's CPU time to start a container.
const faster = "crun"

// Choice is the OCI runtime of pods without a RuntimeClass.
type Choice struct {
	Path string // empty if they have a shim that is not ours
	// Reason says for people why it is that one.
	Reason string
}

// choose returns the OCI runtime of pods without a class: the one that was asked for, else crun if it works on this
// machine, else runc. attempt returns a refusal if a program cannot create containers here; nil means that nobody knows.
func (o *Options) choose(attempt func(program string) error) (Choice, error) {
	asked := Handler{Name: DefaultHandler, Binary: o.RuncPath}
	if i := slices.IndexFunc(o.Handlers, isDefault); i >= 0 {
		asked = o.Handlers[i]
	}
	if asked.Shim != "" {
		return Choice{Reason: "the shim " + asked.Shim + " was asked for"}, nil
	}
	if asked.Binary != "" {
		path, err := findProgram(asked.Binary, o.programDirs())
		return Choice{path, "it was asked for"}, err
	}
	return o.pick(attempt)
}

// pick returns the OCI runtime of handlers that name none.
func (o *Options) pick(attempt func(program string) error) (Choice, error) {
	dirs := o.programDirs()
	runc, noRunc := lookPath(DefaultHandler, dirs)
	candidates, noCrun := o.cruns()
	switch {
	case noRunc != nil && len(candidates) == 0:
		return Choice{}, noRuntime(noRunc, noCrun, dirs)
	case len(candidates) == 0:
		return Choice{runc, "crun is not installed"}, nil
	case attempt == nil && noRunc == nil:
		return Choice{runc, "crun has not been tried"}, nil
	case attempt == nil:
		return Choice{candidates[0], "runc is not installed"}, nil
	}
	return chooseFrom(candidates, runc, dirs, attempt)
}

// cruns returns the programs that may be chosen, the best first. The error says why none is installed.
func (o *Options) cruns() (all []string, err error) {
	if own := filepath.Join(o.Libexec, faster); o.Libexec != "" {
		if _, err := exec.LookPath(own); err == nil {
			all = append(all, own)
		}
	}
	path, err := lookPath(faster, o.programDirs())
	if err == nil && !slices.Contains(all, path) {
		all = append(all, path)
	}
	return all, err
}

// chooseFrom returns the first crun that works, else runc, which may be empty.
func chooseFrom(cruns []string, runc string, dirs []string, attempt func(program string) error) (Choice, error) {
	var refused refusal
	var last string
	for _, crun := range cruns {
		switch err := attempt(crun); {
		case errors.Is(err, errUntried):
			return Choice{crun, "it is faster than runc, and will be tried before it is used"}, nil
		case err == nil:
			return Choice{crun, "it works on this machine, and is faster than runc"}, nil
		case !errors.As(err, &refused):
			return Choice{}, notTried(crun, err)
		}
		last = crun
	}
	if runc == "" {
		return Choice{}, failure.Unusablef("no OCI runtime: runc is not %s, and %w: install the package runc", searched(dirs), cannotCreate(last, refused))
	}
	return Choice{runc, cannotCreate(last, refused).Error()}, nil
}

func cannotCreate(program string, refused refusal) error {
	return fmt.Errorf("%s cannot create a container on this machine: %w", program, refused)
}

// noRuntime says what to install, or what is wrong with what is there.
func noRuntime(noRunc, noCrun error, dirs []string) error {
	switch {
	case !errors.Is(noRunc, exec.ErrNotFound):
		return failure.Unusablef("finding the OCI runtime %q: %w", DefaultHandler, noRunc)
	case !errors.Is(noCrun, exec.ErrNotFound):
		return failure.Unusablef("finding the OCI runtime %q: %w", faster, noCrun)
	}
	return failure.Unusablef("no OCI runtime: neither runc nor crun is %s: install the package runc or crun", searched(dirs))
}

// Chosen returns the OCI runtime of pods without a class.
func (e *Engine) Chosen() Choice { return e.chosen }
