// Package lastrun keeps the report of the last run of each input, below the root. A run is noted when it begins, and
// its process holds a lock as long as it lives: so what was killed is known, and an older report is never taken for
// that of the last run.
package lastrun

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runonce/report"
)

const (
	// version is that of the files. Fields are only added; it changes if they mean something else.
	version = 1
	// dir has a file for each input, and one for each run that goes on, which its process keeps locked.
	dir       = "reports"
	lockFile  = "reports.lock" // held while files are changed
	extension = ".json"
	runPrefix = "run-" // of flock.CreateRun
	// lockTimeout bounds the wait for another process that changes files.
	lockTimeout = 10 * time.Second
)

// Run is the last run of an input.
type Run struct {
	Version int       `json:"version"`
	Command string    `json:"command"` // run or watch
	Paths   []string  `json:"paths"`   // the origins of the input, sorted
	PID     int       `json:"pid"`     // of the process
	Boot    string    `json:"boot"`    // of the machine, in which it began
	Began   time.Time `json:"began"`
	Run     string    `json:"run"` // the name of the file that the process keeps locked
	// Ended is when it was about to end with the report and the exit code.
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exitCode"`
	// Report is there when the run has ended; of a watch it is that of the plan which it has carried out last.
	Report   *report.Saved `json:"report,omitempty"`
	Reported time.Time     `json:"reported,omitzero"`

	// Alive says that the process has not ended.
	Alive bool `json:"-"`

	path string // of the file
}

// HasResult says whether there is a result: a run that has ended with one, or a watch that goes on and has a table.
func (r *Run) HasResult() bool {
	return r.Report != nil && (!r.Ended.IsZero() || r.Alive && r.IsWatch())
}

// IsWatch says whether it goes on when it has a report.
func (r *Run) IsWatch() bool { return r.Command == "watch" }

// OfThisBoot says whether it began since the machine was started.
func (r *Run) OfThisBoot() bool { return r.Boot == process.BootID() }

// String names the run by its input.
func (r *Run) String() string { return r.Command + " of " + Names(r.Paths) }

// Names names an input for people.
func Names(paths []string) string {
	if len(paths) == 0 {
		return "an unknown input"
	}
	names := slices.Clone(paths)
	for i, name := range names {
		if name == "-" {
			names[i] = "standard input"
		}
	}
	return strings.Join(names, " ")
}

// Load returns the last run of an input. The error wraps fs.ErrNotExist if none is known.
func Load(root string, paths []string) (*Run, error) {
	paths = canonical(paths)
	r, err := load(root, pathOf(root, paths))
	if err == nil {
		r.Paths = paths // also if the file is damaged
	}
	return r, err
}

// All returns the last run of each input, the newest first.
func All(root string) ([]*Run, error) {
	files, err := list(root)
	if err != nil {
		return nil, err
	}
	var all []*Run
	for _, f := range files {
		r, err := load(root, filepath.Join(root, dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *Run) int { return b.Began.Compare(a.Began) })
	return all, nil
}

// load reads a file. One that a loss of power has damaged is that of a run that has no result.
func load(root, path string) (*Run, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the report of the last run: %w", err)
	}
	r := &Run{path: path}
	if err := json.Unmarshal(data, r); err != nil {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading the report of the last run: %w", err)
		}
		return &Run{Version: version, Command: "run", Began: info.ModTime(), path: path}, nil
	}
	if r.Version > version {
		return nil, fmt.Errorf("reading the report of the last run: %s is that of a newer version of runonce", path)
	}
	if r.Ended.IsZero() {
		r.Alive, err = flock.IsLocked(filepath.Join(root, dir, filepath.Base(r.Run)))
	}
	return r, err
}

// list returns the files of inputs.
func list(root string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the reports of the last runs: %w", err)
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) != extension }), nil
}

// canonical returns the paths sorted and each once: their order says nothing.
func canonical(paths []string) []string { return slices.Compact(slices.Sorted(slices.Values(paths))) }

// pathOf returns the file of an input.
func pathOf(root string, paths []string) string {
	sum := sha256.Sum256([]byte(strings.Join(paths, "\x00")))
	return filepath.Join(root, dir, hex.EncodeToString(sum[:])+extension)
}

// locked excludes other processes that change the files of the root.
func locked(root string, f func() error) error {
	return flock.Do(filepath.Join(root, lockFile), lockTimeout, f)
}

// Clear removes the reports of all runs that have ended, however they did.
func Clear(root string) error {
	if _, err := os.Stat(filepath.Join(root, dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := locked(root, func() error {
		all, err := All(root)
		if err != nil {
			return err
		}
		for _, r := range all {
			if !r.Alive {
				err = errors.Join(err, os.Remove(r.path))
			}
		}
		err = errors.Join(err, sweep(root))
		_ = os.Remove(filepath.Join(root, dir)) // which fails as long as there are any
		return err
	})
	if err != nil {
		return fmt.Errorf("removing the reports of runs: %w", err)
	}
	return nil
}

// sweep removes what killed runs have left.
func sweep(root string) error {
	runs, err := filepath.Glob(filepath.Join(root, dir, runPrefix+"*"))
	for _, path := range runs {
		if held, lockErr := flock.IsLocked(path); lockErr == nil && !held {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// expire removes the oldest files when there are too many, or too much in them. That of a run that goes on stays, and so
// does the newest.
func expire(root string) error {
	files, err := list(root)
	if err != nil {
		return err
	}
	infos := make([]fs.FileInfo, 0, len(files))
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	size := int64(0)
	for i, info := range infos {
		size += info.Size()
		if i == 0 || i < maxInputs && size <= maxSize {
			continue
		}
		path := filepath.Join(root, dir, info.Name())
		if r, err := load(root, path); err == nil && r.Alive {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		size -= info.Size()
	}
	return nil
}
