package objects_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// content is what there is, without versions, as "resource namespace/name" and a UID with something that changes.
type content map[string]string

// model is a store, and what should be in it.
type model struct {
	t     testing.TB
	store *objects.Store
	next  func(n int) int // a number below n
	now   content
	// states are what List has said at each version of each resource.
	states map[uint64]map[string]string
}

func newModel(t testing.TB, next func(n int) int) *model {
	m := &model{t: t, store: objects.New(1000), next: next, now: content{}, states: map[uint64]map[string]string{}}
	m.remember(map[string]string{})
	return m
}

func (m *model) remember(lists map[string]string) { m.states[m.store.Version()] = lists }

// step changes the store, and checks what follows from it.
func (m *model) step() {
	m.t.Helper()
	before, known := m.store.Version(), maps.Clone(m.now)
	m.change()
	changes, _, err := m.store.Since(before)
	must(m.t, err)
	want(m.t, "version", m.store.Version(), before+uint64(len(changes)))
	state := maps.Clone(m.states[before])
	objectsNow := m.objectsAt(before)
	for i, c := range changes {
		want(m.t, "version of the change", c.Version, before+1+uint64(i))
		key := m.apply(objectsNow, c)
		if c.Now == nil {
			delete(known, key)
		} else {
			known[key] = m.describe(c.Now)
		}
		state[c.Resource] = showAll(sorted(objectsNow[c.Resource]))
		m.states[c.Version] = maps.Clone(state)
	}
	if !maps.Equal(known, m.now) {
		m.t.Fatalf("the changes lead to %v, want %v", known, m.now)
	}
	for _, resource := range []string{pods, services} {
		want(m.t, resource, list(m.t, m.store, resource, 0), state[resource])
	}
}

// objectsAt returns what List says of a version.
func (m *model) objectsAt(version uint64) map[string]map[types.NamespacedName]objects.Object {
	m.t.Helper()
	all := map[string]map[types.NamespacedName]objects.Object{}
	for _, resource := range []string{pods, services} {
		list, _, err := m.store.List(resource, version)
		must(m.t, err)
		all[resource] = map[types.NamespacedName]objects.Object{}
		for _, o := range list {
			all[resource][podspec.NameOf(o)] = o
		}
	}
	return all
}

// apply does what a client does with a change, and checks that the change fits.
func (m *model) apply(to map[string]map[types.NamespacedName]objects.Object, c objects.Change) (key string) {
	m.t.Helper()
	o := c.Now
	if o == nil {
		o = c.Before
	}
	name := podspec.NameOf(o)
	if to[c.Resource][name] != c.Before {
		m.t.Fatalf("%d: before %s, want %s", c.Version, show(c.Before), show(to[c.Resource][name]))
	}
	if c.Now == nil {
		delete(to[c.Resource], name)
	} else {
		want(m.t, "version of the object", c.Now.GetResourceVersion(), strconv.FormatUint(c.Version, 10))
		to[c.Resource][name] = c.Now
	}
	if c.Before != nil && c.Now != nil {
		want(m.t, "UID", c.Now.GetUID(), c.Before.GetUID())
	}
	return c.Resource + " " + name.Name
}

func (m *model) describe(o objects.Object) string {
	o, _ = o.DeepCopyObject().(objects.Object)
	o.SetResourceVersion("")
	return show(o)
}

func sorted(all map[types.NamespacedName]objects.Object) []objects.Object {
	return slices.SortedFunc(maps.Values(all), func(a, b objects.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// change does something to the store and to what should be in it.
func (m *model) change() {
	resource := pods
	if m.next(4) == 0 {
		resource = services
	}
	one := func() objects.Object {
		o := pod("n"+strconv.Itoa(m.next(6)), strconv.Itoa(m.next(2)), strconv.Itoa(m.next(3)))
		m.now[resource+" "+o.Name] = m.describe(o)
		return o
	}
	several := func(n int) (all []objects.Object) {
		for range n {
			all = append(all, one())
		}
		return all
	}
	switch m.next(8) {
	case 0:
		name := named("n" + strconv.Itoa(m.next(6)))
		delete(m.now, resource+" "+name.Name)
		m.store.Delete(resource, name)
	case 1:
		maps.DeleteFunc(m.now, func(key, _ string) bool { return strings.HasPrefix(key, resource+" ") })
		m.store.Replace(resource, several(m.next(5)))
	default:
		m.store.Set(resource, several(m.next(3))...)
	}
}

// check compares the states at every so many versions, as far as they are known, with what was said then.
func (m *model) check(every uint64) (checked int) {
	m.t.Helper()
	for version, state := range m.states {
		if version%every != 0 {
			continue
		}
		for _, resource := range []string{pods, services} {
			all, at, err := m.store.List(resource, version)
			switch {
			case errors.Is(err, objects.ErrExpired) && version < m.store.Version()-kept:
			case err != nil || at != version:
				m.t.Fatalf("version %d of %d: %d, %v", version, m.store.Version(), at, err)
			case showAll(all) != state[resource]:
				m.t.Fatalf("%s at %d: %s, then %s", resource, version, showAll(all), state[resource])
			default:
				checked++
			}
		}
	}
	return checked
}

// TestModel: after random changes, all versions are as they were when they were new.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := newModel(t, r.IntN)
	every := uint64(1)
	if testing.Short() {
		every = 17
	}
	for m.store.Version() < 1000+5*kept {
		m.step()
		if m.next(2000) == 0 {
			m.check(101)
		}
	}
	if checked := m.check(every); uint64(checked) < 2*kept/every {
		t.Errorf("only %d lists were compared", checked)
	}
}

// FuzzModel is TestModel with the changes that the fuzzer wants.
func FuzzModel(f *testing.F) {
	f.Add([]byte("set, replace and delete"))
	f.Add([]byte{1, 2, 1, 0, 0, 0, 1, 2, 1, 0, 1, 0, 1, 1, 3, 0, 0, 0, 1, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newModel(t, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		})
		for len(data) > 0 {
			m.step()
		}
		m.check(1)
	})
}

// TestReaders: any number of readers follow from where they want, and end with the state that there is. None waits for
// another.
func TestReaders(t *testing.T) {
	t.Parallel()
	s := objects.New(0)
	const last = 6 * kept
	var wg sync.WaitGroup
	var expired atomic.Int32
	for reader := range 6 {
		wg.Go(func() {
			state, err := follow(s, last, reader, &expired)
			if err != nil {
				t.Error(err)
				return
			}
			want(t, fmt.Sprintf("what reader %d has", reader), showAll(sorted(state)), list(t, s, pods, last))
		})
	}
	for i := uint64(0); s.Version() < last; i++ {
		s.Set(pods, pod("n"+strconv.FormatUint(i%50, 10), "1", strconv.FormatUint(i, 10)))
		if i%7 == 0 && s.Version() < last {
			s.Delete(pods, named("n"+strconv.FormatUint(i%49, 10)))
		}
	}
	wg.Wait()
	t.Logf("readers have listed again %d times", expired.Load())
}

// follow lists and watches, as clients do, until it knows the last version. Now and then it goes back to an earlier one.
func follow(s *objects.Store, last uint64, reader int, expired *atomic.Int32) (map[types.NamespacedName]objects.Object, error) {
	for {
		all, version, err := s.List(pods, 0)
		if err != nil {
			return nil, err
		}
		if back := rand.Uint64N(500); back < version {
			if earlier, at, err := s.List(pods, version-back); err == nil {
				all, version = earlier, at
			}
		}
		state := map[types.NamespacedName]objects.Object{}
		for _, o := range all {
			state[podspec.NameOf(o)] = o
		}
		for {
			changes, more, err := s.Since(version)
			if errors.Is(err, objects.ErrExpired) {
				expired.Add(1)
				break // and list again
			}
			if err != nil {
				return nil, err
			}
			for _, c := range changes {
				if c.Version != version+1 {
					return nil, fmt.Errorf("reader %d: %d comes after %d", reader, c.Version, version)
				}
				version = c.Version
				if c.Now == nil {
					delete(state, podspec.NameOf(c.Before))
				} else {
					state[podspec.NameOf(c.Now)] = c.Now
				}
			}
			if version >= last {
				return state, nil
			}
			if rand.IntN(50) == 0 {
				break // to begin elsewhere
			}
			<-more
		}
	}
}
