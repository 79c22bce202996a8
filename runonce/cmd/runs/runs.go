// Package runs keeps the runs of one root, which are processes of their own, from
// promising the same room twice: one at a time plans and stops what has to go, and what it
// is going to start counts for the next one.
package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd/filelock"
)

// dirName is below the root. In it are plan.lock, and for each run that lives its booking
// RUN.json, which it keeps locked, and RUN.taken, with a file for each pod that another
// run has taken from it. What a killed run leaves is unlocked, counts for nothing, and is
// removed by the next one that plans.
const dirName = "runs"

const (
	planLock    = "plan.lock"
	bookingExt  = ".json"
	takenExt    = ".taken"
	draftPrefix = "draft-"
)

// Run is one run of a root. Its methods are not safe for concurrent use, but for Barred.
type Run struct {
	dir     string
	plan    *os.File // locked while it is this run's turn to plan
	booking *os.File // locked while this run lives
	marks   string   // the directory of its taken pods; set once, before any pod is worked on
}

// New returns a run of the root. It has booked nothing yet.
func New(root string) *Run { return &Run{dir: filepath.Join(root, dirName)} }

// Enter waits for this run's turn to plan, and clears away what killed runs have left.
func (r *Run) Enter(ctx context.Context) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("waiting for the turn to plan: %w", err)
	}
	f, err := filelock.Hold(ctx, filepath.Join(r.dir, planLock))
	if err != nil {
		return fmt.Errorf("waiting for the turn to plan: %w", err)
	}
	r.plan = f
	if err := sweep(r.dir); err != nil {
		return errors.Join(fmt.Errorf("clearing away after other runs: %w", err), r.Leave())
	}
	return nil
}

// Leave lets the next run plan.
func (r *Run) Leave() error {
	if r.plan == nil {
		return nil
	}
	err := r.plan.Close()
	r.plan = nil
	return err
}

// Book keeps the pods' room for this run until Close: those that it starts, and those that
// run already and that it minds. It has to be this run's turn to plan.
func (r *Run) Book(pods []*v1.Pod) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("booking room for pods: %w", err), r.Close())
		}
	}()
	if r.booking, err = os.CreateTemp(r.dir, draftPrefix); err != nil {
		return err
	}
	if _, err = filelock.Lock(r.booking); err != nil {
		return err
	}
	name := filepath.Join(r.dir, filepath.Base(r.booking.Name())[len(draftPrefix):])
	r.marks = name + takenExt
	if err = os.Mkdir(r.marks, 0o700); err != nil {
		return err
	}
	if err = writeBooking(r.booking, pods); err != nil {
		return err
	}
	return os.Rename(r.booking.Name(), name+bookingExt)
}

// Close ends the run: it leaves and gives up what it has booked.
func (r *Run) Close() error {
	errs := []error{r.Leave()}
	if r.booking != nil {
		name := r.marks[:max(0, len(r.marks)-len(takenExt))] + bookingExt
		errs = append(errs, remove(r.booking.Name()), remove(name), os.RemoveAll(r.marks), r.booking.Close())
		r.booking = nil
	}
	return errors.Join(errs...)
}

// remove deletes a file that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
