// Package objects keeps the versions of objects as the API server's storage does: each change has a version of its own,
// in one order for all resources, and the newest changes are kept for those who watch.
package objects

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// keptChanges is how many changes are kept. Who falls behind further has to list again.
const keptChanges = 2000

// The errors of versions that cannot be had.
var (
	ErrExpired = errors.New("the version is no longer known")
	ErrFuture  = errors.New("the version is not known yet")
)

// Object is one version of an object. It is shared, and must not be changed.
type Object = podspec.Object

// Change is one change of an object of a resource. Before is nil for a new object, and Now for one that is gone.
type Change struct {
	Version     uint64
	Resource    string
	Before, Now Object
}

// Store is safe for concurrent use. Nothing waits for those who read.
type Store struct {
	mu      sync.Mutex
	version uint64   // of the last change
	expired uint64   // changes up to this version are not kept
	changes []Change // the newest ones, in their order
	objects map[string]map[types.NamespacedName]Object
	changed chan struct{} // closed with the next change
}

// New returns a store without objects. version is that of its state; versions of earlier stores of the same objects
// must be lower.
func New(version uint64) *Store {
	return &Store{version: version, expired: version, objects: map[string]map[types.NamespacedName]Object{}, changed: make(chan struct{})}
}

// Set adds the objects, or replaces those that differ, apart from their versions. They belong to the store from then on.
func (s *Store) Set(resource string, all ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell(s.version)
	for _, o := range all {
		s.set(resource, o)
	}
}

// Replace is Set, and deletes the other objects of the resource.
func (s *Store) Replace(resource string, all []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell(s.version)
	gone := maps.Clone(s.objects[resource])
	for _, o := range all {
		delete(gone, podspec.NameOf(o))
	}
	for _, name := range slices.SortedFunc(maps.Keys(gone), Compare) {
		s.delete(resource, name)
	}
	for _, o := range all {
		s.set(resource, o)
	}
}

// Delete deletes an object, if it exists.
func (s *Store) Delete(resource string, name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell(s.version)
	s.delete(resource, name)
}

func (s *Store) set(resource string, o Object) {
	name, version := podspec.NameOf(o), s.version+1
	before, existed := s.objects[resource][name]
	if before == o {
		return
	}
	if existed {
		o.SetResourceVersion(before.GetResourceVersion())
		if equality.Semantic.DeepEqual(before, o) {
			return
		}
	}
	if existed && before.GetUID() != o.GetUID() { // another object of the same name
		s.delete(resource, name)
		before, version = nil, s.version+1
	}
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if s.objects[resource] == nil {
		s.objects[resource] = map[types.NamespacedName]Object{}
	}
	s.objects[resource][name] = o
	s.add(Change{Version: version, Resource: resource, Before: before, Now: o})
}

func (s *Store) delete(resource string, name types.NamespacedName) {
	if before, ok := s.objects[resource][name]; ok {
		delete(s.objects[resource], name)
		s.add(Change{Version: s.version + 1, Resource: resource, Before: before})
	}
}

func (s *Store) add(c Change) {
	s.version = c.Version
	s.changes = append(s.changes, c)
	if len(s.changes) >= 2*keptChanges {
		s.changes = slices.Clone(s.changes[keptChanges:])
		s.expired = s.changes[0].Version - 1
	}
}

// tell wakes those who watch, if there is something new since the version before.
func (s *Store) tell(before uint64) {
	if s.version != before {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Get returns the present version of an object.
func (s *Store) Get(resource string, name types.NamespacedName) (Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[resource][name]
	return o, ok
}

// Namespaces adds the namespaces that objects of the resource are in.
func (s *Store) Namespaces(resource string, to map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects[resource] {
		to[name.Namespace] = true
	}
}

// Version returns the version of the present state.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// List returns the objects of a resource, by namespace and name, as they were at a version, or are for 0, and which
// version that is. The error is ErrExpired or ErrFuture.
func (s *Store) List(resource string, version uint64) ([]Object, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == 0 {
		version = s.version
	}
	later, err := s.since(version)
	if err != nil {
		return nil, 0, err
	}
	all := map[types.NamespacedName]Object{}
	maps.Copy(all, s.objects[resource])
	for _, c := range slices.Backward(later) {
		switch {
		case c.Resource != resource:
		case c.Before != nil:
			all[podspec.NameOf(c.Before)] = c.Before
		default:
			delete(all, podspec.NameOf(c.Now))
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Object) int { return Compare(podspec.NameOf(a), podspec.NameOf(b)) }), version, nil
}

// Since returns the changes of all resources after a version, which must not be changed, and a channel that is closed
// when there are more. The error is ErrExpired or ErrFuture.
func (s *Store) Since(version uint64) (changes []Change, more <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes, err = s.since(version)
	return changes, s.changed, err
}

func (s *Store) since(version uint64) ([]Change, error) {
	switch {
	case version < s.expired:
		return nil, ErrExpired
	case version > s.version:
		return nil, ErrFuture
	}
	i, _ := slices.BinarySearchFunc(s.changes, version+1, func(c Change, v uint64) int { return cmp.Compare(c.Version, v) })
	return slices.Clip(s.changes[i:]), nil
}

// Compare orders names as lists do.
func Compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
