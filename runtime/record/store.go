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
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	run atomic.Pointer[string] // the name of this process's run, set by Reserve before any pod is started

	mu    sync.Mutex // guards cache; held while a record is changed
	cache map[types.UID]cached
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

// load reads the file only if it has changed since the last call.
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
		p = damaged(uid, now.ModTime(), fmt.Errorf("decoding %s: %w", path, err))
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

// damaged stands for a record that cannot be read: a loss of power may leave it empty. The pod has
// failed, so that it is removed or run again like others that have, and does not keep them from that.
func damaged(uid types.UID, written time.Time, err error) *Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = metav1.NamespaceDefault, string(uid), uid
	return &Pod{Version: Version, Pod: pod, Started: written, Failed: &Failure{Reason: "RecordDamaged", Message: err.Error()}}
}

// Update changes the pod's record, atomically also for other processes, and returns the new
// record. A pod without a record has an empty one, which is not written while its Pod is nil.
// change must not call the store.
func (s *Store) Update(uid types.UID, change func(*Pod) error) (p *Pod, err error) {
	err = s.locked(func() error {
		p, err = s.update(uid, change)
		return err
	})
	return p, err
}

// UpdateAmong is Update for what depends on the records of other pods, none of which changes
// meanwhile.
func (s *Store) UpdateAmong(uid types.UID, change func(p *Pod, others []*Pod) error) (p *Pod, err error) {
	err = s.locked(func() error {
		others, err := s.list()
		if err != nil {
			return err
		}
		others = slices.DeleteFunc(others, func(p *Pod) bool { return p.Pod.UID == uid })
		p, err = s.update(uid, func(p *Pod) error { return change(p, others) })
		return err
	})
	return p, err
}

// update is Update under the lock.
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

// locked calls f while nothing else changes a record, in this process or in another one.
func (s *Store) locked(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.root, 0o711); err != nil {
		return fmt.Errorf("making the directory of pods: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.root, writeLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the records of pods: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := flock.Wait(file, writeTimeout); err != nil {
		return fmt.Errorf("locking the records of pods: %w", err)
	}
	return f()
}

// write replaces the record atomically: it is complete or absent, also after a crash.
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

// List returns all records, in order of namespace, name and UID. A directory without a record
// belongs to a pod whose start was interrupted before anything of it ran.
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
	current := make(map[types.UID]cached, len(entries)) // without those that other processes have removed
	for _, e := range entries {
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
	slices.SortFunc(pods, func(a, b *Pod) int { return strings.Compare(key(a), key(b)) })
	return pods, nil
}

func key(p *Pod) string { return p.Pod.Namespace + "/" + p.Pod.Name + "/" + string(p.Pod.UID) }

// Remove removes the pod's directory, the record last: as long as anything is left, a later
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
	return s.locked(func() error {
		p, err := s.load(uid)
		if err == nil && s.ownedByOthers(p) {
			return s.write(uid, &Pod{Pod: p.Pod, Owners: p.Owners, Removed: true})
		}
		return s.forget(uid)
	})
}

// forget removes what is left of the pod's directory.
func (s *Store) forget(uid types.UID) error {
	delete(s.cache, uid)
	if err := os.RemoveAll(s.Dir(uid)); err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	return nil
}
