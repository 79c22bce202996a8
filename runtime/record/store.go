package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
)

// Files of a store. The others in a pod's directory are those that its containers mount.
const (
	podsDir    = "pods"
	recordFile = "pod.json"
	writeLock  = "pods.lock" // held while a record is changed; it has a number that says whether one was
)

// writeTimeout bounds the wait for another process that changes a record, which takes
// milliseconds.
const writeTimeout = 20 * time.Second

// Store keeps the records of all pods below one root. Its methods are safe for concurrent
// use, by several processes too.
type Store struct {
	// Notify, if not nil, is told what a call waits for when that takes long. It must be set
	// before the first call.
	Notify func(message string)

	root  string
	state string

	run atomic.Pointer[identity] // this process's run, set by Reserve before any pod is started

	mu    sync.Mutex // guards the rest; held while a record is changed
	cache map[types.UID]cached
	all   listing
}

// cached is a record with the file that it was read from.
type cached struct {
	pod  *Pod
	file fs.FileInfo
}

// Open returns the store of a root. state is the directory for what does not outlive a reboot.
// It creates nothing yet.
func Open(root, state string) *Store {
	return &Store{root: root, state: state, cache: map[types.UID]cached{}}
}

// Root returns the directory of the store.
func (s *Store) Root() string { return s.root }

// Dir returns the directory of the pod's record and of the files that belong to it.
func (s *Store) Dir(uid types.UID) string { return filepath.Join(s.root, podsDir, string(uid)) }

// Load returns the pod's record. The error wraps fs.ErrNotExist when there is none.
func (s *Store) Load(uid types.UID) (*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(uid)
}

// stoppedMode is the mode of the record of a pod that was told to stop when there was no space for
// another record.
const stoppedMode = 0o400

// Stop records that the pod was told to stop, and so has failed until it is removed. On a full disk the
// mode of its file says so, which needs no space.
func (s *Store) Stop(uid types.UID) error {
	_, err := s.Update(uid, func(p *Pod) error {
		p.Failed, p.Outcome = stopped(), nil // which was before
		return nil
	})
	if err == nil {
		return nil
	}
	path := s.recordPath(uid)
	if s.changeUnlocked(func() error { return os.Chmod(path, stoppedMode) }) == nil && atomicfile.Sync(path) == nil {
		return nil
	}
	return err
}

func stopped() *Failure {
	return &Failure{Reason: ReasonStopped, Message: "the pod was told to stop and has not been removed yet"}
}

func (s *Store) recordPath(uid types.UID) string { return filepath.Join(s.Dir(uid), recordFile) }

// load reads the file only if it has changed since the last call.
func (s *Store) load(uid types.UID) (*Pod, error) {
	path := s.recordPath(uid)
	now, err := os.Stat(path)
	if err != nil {
		delete(s.cache, uid)
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	if c, ok := s.cache[uid]; ok && atomicfile.Unchanged(c.file, now) {
		return c.pod, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	p := decode(uid, path, data, now.ModTime())
	if now.Mode().Perm() == stoppedMode && p.Failed == nil {
		p.Failed, p.Outcome = stopped(), nil
	}
	s.cache[uid] = cached{p, now}
	return p, nil
}

// Update changes the pod's record, atomically also for other processes, and returns the new one,
// of which what stays true after a restart of the machine is on disk. A record that stays the same is not
// written. A pod without a record has an empty one, which is not written while its Pod is nil. One of another
// version is never written: it stays what that version knows until Remove. change must not call the store.
func (s *Store) Update(uid types.UID, change func(*Pod) error) (now *Pod, err error) {
	var lasts bool
	err = s.locked(func() error {
		now, lasts, err = s.update(uid, change)
		return err
	})
	if err == nil && lasts {
		err = s.sync(now)
	}
	return now, err
}

// UpdateAmong is Update for what depends on the records of other pods, none of which changes
// meanwhile.
func (s *Store) UpdateAmong(uid types.UID, change func(p *Pod, others []*Pod) error) (*Pod, error) {
	return s.Update(uid, func(p *Pod) error {
		others, err := s.list()
		if err != nil {
			return err
		}
		return change(p, slices.DeleteFunc(others, func(p *Pod) bool { return p.Pod.UID == uid }))
	})
}

// sync returns once the record is on disk. It needs no lock, so that the disk is flushed once for the
// records of several pods.
func (s *Store) sync(p *Pod) error {
	if err := errors.Join(atomicfile.Sync(s.recordPath(p.Pod.UID)), atomicfile.Sync(s.Dir(p.Pod.UID))); err != nil {
		return fmt.Errorf("recording pod %q: %w", p.Pod.Name, err)
	}
	return nil
}

// update is Update under the lock. Of what lasts, a loss of power may still leave nothing.
func (s *Store) update(uid types.UID, change func(*Pod) error) (now *Pod, lasts bool, err error) {
	old, err := s.load(uid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = &Pod{Version: Version}
	case err != nil:
		return nil, false, err
	}
	now = old.clone()
	if err := change(now); err != nil || now.Pod == nil || now.OtherVersion() {
		return now, false, err
	}
	if reflect.DeepEqual(old, now) {
		return old, false, nil
	}
	return now, !reflect.DeepEqual(old.lasting(), now.lasting()), s.write(uid, now)
}

// locked calls f while nothing else changes a record, in this process or in another one.
func (s *Store) locked(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return flock.With(filepath.Join(s.root, writeLock), writeTimeout, func(lock *os.File) error {
		s.all.lock = lock
		defer func() { s.all.lock = nil }()
		return f()
	})
}

// write replaces the record in the file and in the cache: it is complete or absent, also after a loss
// of power.
func (s *Store) write(uid types.UID, p *Pod) error {
	p.Version = Version
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding pod %q: %w", p.Pod.Name, err)
	}
	if err := os.MkdirAll(s.Dir(uid), 0o750); err != nil {
		return fmt.Errorf("making the directory of pod %q: %w", p.Pod.Name, err)
	}
	path := s.recordPath(uid)
	var file fs.FileInfo
	err = s.change(func() (err error) {
		if err = atomicfile.WriteOrdered(path, data, 0o600); err == nil {
			file, err = os.Stat(path)
		}
		return err
	}, func() { s.all.replace(p) })
	if err != nil {
		return fmt.Errorf("recording pod %q: %w", p.Pod.Name, err)
	}
	s.cache[uid] = cached{p, file}
	return nil
}

// List returns all records, in order of namespace, name and UID. A directory without a record
// belongs to a pod whose start was interrupted before anything of it ran.
func (s *Store) List() ([]*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *Store) list() ([]*Pod, error) {
	at := s.now()
	if s.all.right(at) {
		return slices.Clone(s.all.pods), nil
	}
	began := time.Now()
	entries, err := os.ReadDir(filepath.Join(s.root, podsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	pods := make([]*Pod, 0, len(entries))
	current := make(map[types.UID]cached, len(entries)) // without those that other processes have removed
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		uid := types.UID(e.Name())
		p, err := s.load(uid)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		pods, current[uid] = append(pods, p), s.cache[uid]
	}
	s.cache = current
	slices.SortFunc(pods, compare)
	s.all.pods, s.all.at, s.all.read = pods, at, began
	return slices.Clone(pods), nil
}

// Remove removes the pod's directory, the record last: as long as anything is left, a later
// process finds the pod and can finish the work. While other runs own the pod, the record
// stays and says that it was removed.
func (s *Store) Remove(uid types.UID) error { return s.remove(uid, s.ownedByOthers) }

// Reset is Remove for a pod that is started again by the run of this process, which goes on owning
// it: the record stays.
func (s *Store) Reset(uid types.UID) error { return s.remove(uid, func(*Pod) bool { return true }) }

func (s *Store) remove(uid types.UID, stays func(*Pod) bool) error {
	entries, err := os.ReadDir(s.Dir(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == recordFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.Dir(uid), e.Name())); err != nil {
			return fmt.Errorf("removing pod directory: %w", err)
		}
	}
	var left *Pod
	err = s.locked(func() error {
		p, err := s.load(uid)
		if err == nil && !p.OtherVersion() && stays(p) {
			left = &Pod{Pod: p.Pod, Owners: p.Owners, Removed: true}
			return s.write(uid, left)
		}
		return s.forget(uid)
	})
	switch {
	case err != nil:
		return err
	case left != nil:
		return s.sync(left)
	}
	if err := atomicfile.Sync(filepath.Dir(s.Dir(uid))); err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	return nil
}

// forget removes what is left of the pod's directory.
func (s *Store) forget(uid types.UID) error {
	delete(s.cache, uid)
	err := s.change(func() error { return os.RemoveAll(s.Dir(uid)) }, func() { s.all.remove(uid) })
	if err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	return nil
}
