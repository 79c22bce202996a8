package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
)

// Files of a store. The others in a pod's directory are those that its containers mount.
const (
	podsDir    = "pods"
	recordFile = "pod.json"
	writeLock  = "pods.lock" // held while a record is changed
)

// Store keeps the records of all pods below one root. Its methods are safe for concurrent
// use, by several processes too.
type Store struct {
	root  string
	state string

	mu    sync.Mutex // guards cache, and Update
	cache map[types.UID]cached
	owner string // the name of this process's run, once it has booked pods
}

// cached is a record with the file that it was read from.
type cached struct {
	pod  *Pod
	file fs.FileInfo
}

// Open returns the store of a root. state is the directory for what ends with a reboot. It
// touches nothing yet.
func Open(root, state string) *Store {
	return &Store{root: root, state: state, cache: map[types.UID]cached{}}
}

// Dir returns the directory of the pod's record and of the files that belong to it.
func (s *Store) Dir(uid types.UID) string { return filepath.Join(s.root, podsDir, string(uid)) }

// Load returns the pod's record. The error wraps fs.ErrNotExist when there is none.
func (s *Store) Load(uid types.UID) (*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(uid)
}

// load reads the file only when it is another one than at the last call.
func (s *Store) load(uid types.UID) (*Pod, error) {
	path := filepath.Join(s.Dir(uid), recordFile)
	now, err := os.Stat(path)
	if err != nil {
		delete(s.cache, uid)
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	if c, ok := s.cache[uid]; ok && os.SameFile(now, c.file) && now.Size() == c.file.Size() && now.ModTime().Equal(c.file.ModTime()) {
		return c.pod, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	p := &Pod{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("decoding pod %s: %w", path, err)
	}
	switch {
	case p.Version != Version:
		return nil, fmt.Errorf("decoding pod %s: version %d of the record is not supported, %d is", path, p.Version, Version)
	case p.Pod == nil:
		return nil, fmt.Errorf("decoding pod %s: the record has no pod", path)
	}
	s.cache[uid] = cached{p, now}
	return p, nil
}

// Update changes the pod's record, in one step also for other processes, and returns it as
// it is then. A pod without a record has an empty one, which is not written while its Pod is
// nil. change must not call the store.
func (s *Store) Update(uid types.UID, change func(*Pod) error) (*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.update(uid, change)
}

// UpdateAmong is Update for what has to be chosen among what other pods have: no record
// changes meanwhile. others are all records but the pod's own.
func (s *Store) UpdateAmong(uid types.UID, change func(p *Pod, others []*Pod) error) (*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	others, err := s.list()
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(p *Pod) bool { return p.Pod.UID == uid })
	return s.update(uid, func(p *Pod) error { return change(p, others) })
}

// update is Update for who holds both locks.
func (s *Store) update(uid types.UID, change func(*Pod) error) (*Pod, error) {
	old, err := s.load(uid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = &Pod{}
	case err != nil:
		return nil, err
	}
	now := old.clone()
	if err := change(now); err != nil || now.Pod == nil {
		return now, err
	}
	return now, s.write(uid, now)
}

// lock waits until no other process changes a record.
func (s *Store) lock() (unlock func(), err error) {
	path := filepath.Join(s.root, writeLock)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(s.root, 0o711); err != nil {
			return nil, fmt.Errorf("making the directory of pods: %w", err)
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the records of pods: %w", err)
	}
	if err := flock.Wait(f); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the records of pods: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// write replaces the record in one step: it is complete or absent, also after a crash.
func (s *Store) write(uid types.UID, p *Pod) error {
	p.Version = Version
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding pod %q: %w", p.Pod.Name, err)
	}
	dir := s.Dir(uid)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of pod %q: %w", p.Pod.Name, err)
	}
	path := filepath.Join(dir, recordFile)
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("recording pod %q: %w", p.Pod.Name, err)
	}
	file, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("recording pod %q: %w", p.Pod.Name, err)
	}
	s.cache[uid] = cached{p, file}
	return nil
}

// List returns all records, in order of namespace, name and UID. A directory without one
// belongs to a pod whose start was cut off before anything of it ran.
func (s *Store) List() ([]*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *Store) list() ([]*Pod, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, podsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	pods := make([]*Pod, 0, len(entries))
	for _, e := range entries {
		p, err := s.load(types.UID(e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return strings.Compare(key(a), key(b)) })
	return pods, nil
}

func key(p *Pod) string { return p.Pod.Namespace + "/" + p.Pod.Name + "/" + string(p.Pod.UID) }

// Remove deletes the pod's directory, the record last: as long as anything is left, a later
// process finds the pod and can finish the work. While other runs own the pod, the record
// stays and says that it was removed.
func (s *Store) Remove(uid types.UID) error {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	p, err := s.load(uid)
	if err == nil && s.ownedByOthers(p) {
		return s.write(uid, &Pod{Pod: p.Pod, Owners: p.Owners, Removed: true})
	}
	return s.forget(uid)
}

// forget deletes what is left of the pod's directory.
func (s *Store) forget(uid types.UID) error {
	delete(s.cache, uid)
	if err := os.RemoveAll(s.Dir(uid)); err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	return nil
}
