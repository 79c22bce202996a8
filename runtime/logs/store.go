package logs

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
	"syscall"
	"time"
)

const (
	// keepInstances is how many logs of one container are kept, with the newest.
	keepInstances = 5
	// keepPods and keepAge are how many logs of removed pods are kept, and for how long. As many are kept of
	// pods that were never started, of which there are only events.
	keepPods = 100
	keepAge  = 30 * 24 * time.Hour
)

// markPrefix begins the names of the files that say whose logs are in a pod's directory: one
// for each root that has run the pod. A directory without one is not ours.
const markPrefix = ".runonce-"

// Store has the logs of the pods of one root. A kubelet and other roots may have theirs in the
// same directory.
type Store struct {
	Dir  string // of all logs
	Root string // of the records
}

// Mark is what is known of a pod from its logs alone. The modification time of its file is when
// a container of the pod was last started, or the pod was removed.
type Mark struct {
	Root       string   `json:"root"`
	Containers []string `json:"containers"`
	Init       []string `json:"initContainers,omitempty"`
	// Ephemeral is only set where it is asked of a pod: these containers are added when the mark was made.
	Ephemeral []string `json:"-"`
	// Default is the container that the pod's annotations choose, if they do.
	Default string `json:"default,omitempty"`
}

// Choose returns the container that the pod's annotations choose; empty if there is none.
func (m Mark) Choose() string {
	if slices.Contains(m.Containers, m.Default) || slices.Contains(m.Init, m.Default) {
		return m.Default
	}
	return ""
}

// Chosen returns the wanted container, or else the one that kubectl chooses.
func (m Mark) Chosen(wanted string) string { return cmp.Or(wanted, m.Choose(), m.Containers[0]) }

// Names returns the containers as kubectl lists them (k8s.io/kubectl/pkg/util/podutils
// AllContainerNames).
func (m Mark) Names() []string {
	names := slices.Clone(m.Containers)
	for _, name := range m.Ephemeral {
		names = append(names, name+" (ephem)")
	}
	for _, name := range m.Init {
		names = append(names, name+" (init)")
	}
	return names
}

// Found are the logs of one pod.
type Found struct {
	Pod
	Path    string
	Owned   bool // by this root
	Changed time.Time
}

// Create makes the log file of a new instance of a container and returns its path: the first
// number after those of all earlier instances, of which the newest are kept.
func (s Store) Create(pod Pod, container string, about Mark) (string, error) {
	if err := s.mark(pod.Dir(s.Dir), about); err != nil {
		return "", fmt.Errorf("making the log directory of pod %q: %w", pod.Name, err)
	}
	dir := filepath.Join(pod.Dir(s.Dir), container)
	next := 0
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		attempts, err := Attempts(dir)
		if err != nil {
			return "", err
		}
		if n := len(attempts); n > 0 {
			next = attempts[n-1] + 1
			if err := s.prune(pod, dir, attempts[:max(0, n+1-keepInstances)]); err != nil {
				return "", err
			}
		}
	case err != nil:
		return "", fmt.Errorf("making the log directory of container %q: %w", container, err)
	}
	for ; ; next++ {
		path := filepath.Join(dir, attemptName(next))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, logMode)
		switch {
		case errors.Is(err, fs.ErrExist):
			continue // another root runs the same pod
		case err != nil:
			return "", fmt.Errorf("making the log of container %q: %w", container, err)
		}
		return path, f.Close()
	}
}

// mark makes the directory of a pod's logs, and marks it as this root's, unless somebody else
// has made it.
func (s Store) mark(dir string, about Mark) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if made := err == nil; !made {
		if err := s.touch(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		foreign := slices.DeleteFunc(slices.Clone(entries), isOurs)
		if len(foreign) > 0 && !slices.ContainsFunc(entries, isMark) {
			return nil
		}
	}
	about.Root = s.Root
	data, _ := json.Marshal(about) // texts
	return os.WriteFile(s.markPath(dir), append(data, '\n'), 0o644)
}

// prune removes old logs of a container, if the pod is only this root's.
func (s Store) prune(pod Pod, dir string, attempts []int) error {
	if len(attempts) == 0 || !s.soleOwner(pod.Dir(s.Dir)) {
		return nil
	}
	return removeAttempts(dir, attempts)
}

// soleOwner reports whether a pod's directory is marked as this root's alone.
func (s Store) soleOwner(dir string) bool {
	entries, err := os.ReadDir(dir)
	own := filepath.Base(s.markPath(dir))
	marks := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !isMark(e) })
	return err == nil && len(marks) == 1 && marks[0].Name() == own
}

func isMark(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), markPrefix) }

func (s Store) markPath(dir string) string {
	return filepath.Join(dir, markPrefix+s.id())
}

// id names the root in the names of files.
func (s Store) id() string {
	sum := sha256.Sum256([]byte(s.Root))
	return hex.EncodeToString(sum[:4])
}

func (s Store) touch(dir string) error {
	now := time.Now()
	return os.Chtimes(s.markPath(dir), now, now)
}

// Discard removes the log of an instance that was never started, unless something was written
// to it.
func (s Store) Discard(path string) error {
	if !Empty(path) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the log of an instance that was not started: %w", err)
	}
	return nil
}

// Empty reports whether the log at path exists and has nothing in it.
func Empty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// Removed records that the pod was removed now.
func (s Store) Removed(pod Pod) error {
	if err := s.touch(pod.Dir(s.Dir)); err != nil && !isAbsent(err) {
		return fmt.Errorf("marking the logs of pod %q: %w", pod.Name, err)
	}
	return nil
}

// List returns the logs of all pods in the directory, also of those that are not this root's.
func (s Store) List() ([]Found, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	var all []Found
	for _, e := range entries {
		// NAMESPACE_NAME_UID, none of which can contain an underscore.
		parts := strings.Split(e.Name(), "_")
		if len(parts) != 3 || !e.IsDir() {
			continue
		}
		f := Found{Pod: Pod{parts[0], parts[1], parts[2]}, Path: filepath.Join(s.Dir, e.Name()), Owned: true}
		info, err := os.Stat(s.markPath(f.Path))
		if err != nil {
			f.Owned = false
			info, err = e.Info()
		}
		if err != nil {
			continue // it has just been removed
		}
		f.Changed = info.ModTime()
		all = append(all, f)
	}
	return all, nil
}

// Mark returns what this root has recorded of the pod whose logs are in the directory; nothing
// if it has not.
func (s Store) Mark(dir string) Mark {
	var m Mark
	if data, err := os.ReadFile(s.markPath(dir)); err != nil || json.Unmarshal(data, &m) != nil {
		return Mark{}
	}
	return m
}

// Expired returns those of the logs of removed pods, all owned by this root, that are too old
// or too many. Those that have only events count for themselves.
func Expired(removed []Found, now time.Time) []Found {
	var started, others []Found
	for _, f := range removed {
		if f.HasLogs() {
			started = append(started, f)
		} else {
			others = append(others, f)
		}
	}
	return slices.Concat(expired(started, now), expired(others, now))
}

func expired(byAge []Found, now time.Time) []Found {
	slices.SortStableFunc(byAge, func(a, b Found) int { return b.Changed.Compare(a.Changed) })
	for i, f := range byAge {
		if i >= keepPods || now.Sub(f.Changed) > keepAge {
			return byAge[i:]
		}
	}
	return nil
}

// Remove removes the logs of a pod if they are this root's. What other roots have logged of the
// same pod stays, with all that is beside it.
func (s Store) Remove(pod Pod) error {
	dir := pod.Dir(s.Dir)
	sole := s.soleOwner(dir)
	if sole {
		// The mark last: what an interruption leaves is still known to be this root's.
		entries, err := os.ReadDir(dir)
		for _, e := range slices.DeleteFunc(entries, isMark) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		if err != nil {
			return fmt.Errorf("removing logs: %w", err)
		}
	} else if err := s.removeEvents(pod); err != nil {
		return err
	}
	err := os.Remove(s.markPath(dir))
	if err == nil && sole {
		err = os.Remove(dir)
	}
	// It exists when another root has just begun to use it.
	if err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("removing logs: %w", err)
	}
	return nil
}

// isAbsent reports whether the error says that there is no such file. None can have a name that is
// too long.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
}
