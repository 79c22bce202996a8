package record

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/flock"
)

// identity is the run of a process: its name, and which of the pods that it starts it removes.
type identity struct{ name, removes string }

// Killed is a run that was killed before it could remove what it had made.
type Killed struct {
	// Pods are those that it has started, and that no living run has admitted since. Removes is its word for which of them it
	// would have removed.
	Pods    []*Pod
	Removes string
	// Objects and Report are as in flock.Cleanup.
	Objects []string
	Report  string

	file string
}

// Tie notes that this process's run has started the pod, if it removes such pods at its end.
func (s *Store) Tie(p *Pod) {
	run := s.run.Load()
	if run == nil || run.removes == "" {
		return
	}
	if p.Owners == nil {
		p.Owners = map[string]Owner{}
	}
	o := p.Owners[run.name]
	o.Removes = run.removes
	p.Owners[run.name] = o
}

// RunFile returns the file that the run which has started the pod keeps locked while it lives, if it removes the pod at its
// end, else "".
func (s *Store) RunFile(p *Pod) string {
	for name, o := range p.Owners {
		if o.Removes != "" {
			return filepath.Join(s.runs(), name)
		}
	}
	return ""
}

// Keeps reports whether pods that the run has started, and that it would have removed, or others of them, are left.
func (r *Run) Keeps() bool {
	return slices.ContainsFunc(r.pods, func(uid types.UID) bool {
		p, err := r.store.Load(uid)
		return err == nil && !p.Removed && p.Owners[r.store.owner()].Removes != ""
	})
}

// Killed returns the runs that were killed before they could remove what they had made.
func (s *Store) Killed() ([]Killed, error) {
	var all []Killed
	err := s.eachDead(func(path string, cleanup flock.Cleanup) error {
		if len(cleanup.Command) > 0 {
			all = append(all, Killed{Objects: cleanup.Objects, Report: cleanup.Report, file: path})
		}
		return nil
	})
	if len(all) == 0 || err != nil {
		return nil, err
	}
	pods, err := s.List()
	if err != nil {
		return nil, err
	}
	for i := range all {
		k := &all[i]
		for _, p := range pods {
			if o := p.Owners[filepath.Base(k.file)]; o.Removes != "" && !p.Removed && !s.ownedByOthers(p) {
				k.Pods, k.Removes = append(k.Pods, p), o.Removes
			}
		}
	}
	return all, nil
}

// eachDead calls do with the file of each run whose process has ended without it, and what remains to be done for the run. A file
// that is gone meanwhile is no error.
func (s *Store) eachDead(do func(path string, cleanup flock.Cleanup) error) error {
	entries, err := os.ReadDir(s.runs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for killed runs: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.runs(), e.Name())
		if held, err := flock.IsLocked(path); err != nil || held || e.Name() == planLock {
			continue
		}
		cleanup, err := flock.ReadCleanup(path)
		if err == nil {
			err = do(path, cleanup)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Discard forgets a killed run of which nothing is to be removed any more: its other pods stay.
func (s *Store) Discard(k Killed) error {
	for _, p := range k.Pods {
		if err := s.Release(p.Pod.UID); err != nil {
			return err
		}
	}
	if err := os.Remove(k.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting a killed run: %w", err)
	}
	return nil
}

// Release says that the pod, if it has a record, stays although the run that has started it has ended, or is about to.
func (s *Store) Release(uid types.UID) error {
	_, err := s.Update(uid, func(p *Pod) error {
		if s.RunFile(p) == "" {
			return nil
		}
		maps.DeleteFunc(p.Owners, func(name string, o Owner) bool { return o.Removes != "" && (name == s.owner() || !s.lives(name)) })
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
