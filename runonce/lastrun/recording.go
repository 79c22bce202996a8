package lastrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runonce/report"
)

// What is kept: the reports of so many inputs, the newest, and so much of them together.
const (
	maxInputs = 32
	maxSize   = 32 << 20
)

// Recording records a run. Its methods may be called of nil, and then do nothing: a run that could not be noted goes on.
type Recording struct {
	root string
	now  Run
	lock *os.File
}

// Begin notes that a run of the input begins. If that is not possible, it removes the report of the run before, so
// that nobody takes that for the last one.
func Begin(root, command string, paths []string) (*Recording, error) {
	paths = canonical(paths)
	r := &Recording{root: root, now: Run{
		Version: version, Command: command, Paths: paths, PID: os.Getpid(), Boot: process.BootID(), Began: time.Now(),
	}}
	err := os.MkdirAll(filepath.Join(root, dir), 0o700)
	if err == nil {
		err = locked(root, r.begin)
	}
	if err != nil {
		r.release()
		_ = os.Remove(pathOf(root, paths)) // it may not be there, or not be removable
		return nil, fmt.Errorf("noting that the run begins: %w", err)
	}
	// A loss of power must not bring the report before back. Nothing waits for the disk.
	go func() {
		_ = errors.Join(atomicfile.Sync(pathOf(root, paths)), atomicfile.Sync(filepath.Join(root, dir)))
	}()
	return r, nil
}

func (r *Recording) begin() (err error) {
	if err := sweep(r.root); err != nil {
		return err
	}
	if r.lock, err = flock.CreateRun(filepath.Join(r.root, dir), nil); err != nil {
		return err
	}
	r.now.Run = filepath.Base(r.lock.Name())
	data, err := json.Marshal(r.now)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(pathOf(r.root, r.now.Paths), data, 0o600); err != nil {
		return err
	}
	return expire(r.root)
}

// Report keeps the report of a run that is about to end, or that of the last plan of a watch that goes on.
func (r *Recording) Report(s report.Saved, ends bool) error {
	if r == nil {
		return nil
	}
	r.now.Report, r.now.ExitCode, r.now.Reported = &s, s.Report.ExitCode, time.Now()
	if ends {
		r.now.Ended = r.now.Reported
	}
	return r.write()
}

// End keeps the exit code, if it is not that of the report, and has others know that the run has ended.
func (r *Recording) End(code int) error {
	if r == nil {
		return nil
	}
	var err error
	if !r.now.Ended.IsZero() && r.now.ExitCode != code {
		r.now.ExitCode = code
		err = r.write()
	}
	r.release()
	return err
}

// write writes the file, unless another run of the input has begun since.
func (r *Recording) write() error {
	data, err := json.Marshal(r.now)
	if err != nil {
		return fmt.Errorf("keeping the report: %w", err)
	}
	err = locked(r.root, func() error {
		last, err := load(r.root, pathOf(r.root, r.now.Paths))
		if errors.Is(err, fs.ErrNotExist) || err == nil && last.Run != r.now.Run {
			return nil
		}
		return errors.Join(atomicfile.WriteOrdered(pathOf(r.root, r.now.Paths), data, 0o600), expire(r.root))
	})
	if err != nil {
		return fmt.Errorf("keeping the report: %w", err)
	}
	return nil
}

func (r *Recording) release() {
	if r.lock != nil {
		_ = os.Remove(r.lock.Name())
		_ = r.lock.Close()
		r.lock = nil
	}
}

// ID names the run, so that others can conclude it; "" if it could not be noted.
func (r *Recording) ID() string {
	if r == nil {
		return ""
	}
	return r.now.Run
}

// Conclude keeps the report that somebody has made of a run that was killed. It does nothing if another run of the input has
// begun since, or if there is a report.
func Conclude(root, id string, s report.Saved) error {
	all, err := All(root)
	for _, r := range all {
		if r.Run == id && !r.Alive && !r.HasResult() {
			err = errors.Join(err, (&Recording{root: root, now: *r}).Report(s, true))
		}
	}
	return err
}
