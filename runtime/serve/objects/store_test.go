package objects_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve/objects"
)

const (
	pods     = "pods"
	services = "services"
	// kept is how many changes are kept at least, and twice that is more than are ever kept.
	kept = 2000
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// pod returns an object that has a name, a UID and something that can change.
func pod(name, uid, content string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), ResourceVersion: "what the caller had"},
		Spec:       v1.PodSpec{Hostname: content},
	}
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// show describes an object, with its version.
func show(o objects.Object) string {
	if o == nil {
		return "-"
	}
	content := ""
	if p, ok := o.(*v1.Pod); ok {
		content = p.Spec.Hostname
	}
	return fmt.Sprintf("%s/%s(%s %s @%s)", o.GetNamespace(), o.GetName(), o.GetUID(), content, o.GetResourceVersion())
}

// since returns the changes after a version, in a line.
func since(t testing.TB, s *objects.Store, version uint64) string {
	t.Helper()
	changes, _, err := s.Since(version)
	must(t, err)
	all := make([]string, 0, len(changes))
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%d %s %s→%s", c.Version, c.Resource, show(c.Before), show(c.Now)))
	}
	return strings.Join(all, "; ")
}

// list returns the objects of a resource at a version, in a line.
func list(t testing.TB, s *objects.Store, resource string, version uint64) string {
	t.Helper()
	all, at, err := s.List(resource, version)
	must(t, err)
	if version != 0 {
		want(t, "version of the list", at, version)
	}
	return showAll(all)
}

func showAll(all []objects.Object) string {
	lines := make([]string, 0, len(all))
	for _, o := range all {
		lines = append(lines, show(o))
	}
	return strings.Join(lines, " ")
}

// TestUnchanged: an object that is set again as it is keeps its version, whatever version the caller has put into it.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	s := objects.New(10)
	s.Set(pods, pod("a", "1", "x"))
	first, ok := s.Get(pods, named("a"))
	want(t, "found", ok, true)
	_, more, err := s.Since(11)
	must(t, err)
	s.Set(pods, pod("a", "1", "x"))
	s.Replace(pods, []objects.Object{pod("a", "1", "x")})
	s.Delete(pods, named("b"))
	s.Delete(services, named("a"))
	s.Replace(services, nil)
	now, _ := s.Get(pods, named("a"))
	want(t, "the object is the same", now == first, true)
	want(t, "its version", now.GetResourceVersion(), "11")
	want(t, "version", s.Version(), 11)
	select {
	case <-more:
		t.Error("who waits was woken for nothing")
	default:
	}
}

// TestChanges: every change has a version of its own, in one order for all resources.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := objects.New(10)
	s.Set(pods, pod("b", "1", "x"), pod("a", "2", "x"))
	s.Set(services, pod("a", "3", "x"))
	s.Set(pods, pod("b", "1", "y"))
	s.Delete(services, named("a"))
	s.Replace(pods, []objects.Object{pod("c", "4", "x"), pod("a", "2", "x")})
	want(t, "changes", since(t, s, 10), "11 pods -→default/b(1 x @11); 12 pods -→default/a(2 x @12); 13 services -→default/a(3 x @13); "+
		"14 pods default/b(1 x @11)→default/b(1 y @14); 15 services default/a(3 x @13)→-; "+
		"16 pods default/b(1 y @14)→-; 17 pods -→default/c(4 x @17)")
	want(t, "the last ones", since(t, s, 16), "17 pods -→default/c(4 x @17)")
	want(t, "none", since(t, s, 17), "")
	want(t, "version", s.Version(), 17)
	for version, expect := range map[uint64]string{
		0:  "default/a(2 x @12) default/c(4 x @17)",
		17: "default/a(2 x @12) default/c(4 x @17)",
		16: "default/a(2 x @12)",
		15: "default/a(2 x @12) default/b(1 y @14)",
		13: "default/a(2 x @12) default/b(1 x @11)",
		11: "default/b(1 x @11)",
		10: "",
	} {
		want(t, fmt.Sprintf("pods at %d", version), list(t, s, pods, version), expect)
	}
}

// TestOtherUID: another object of the same name is no change of the one before.
func TestOtherUID(t *testing.T) {
	t.Parallel()
	s := objects.New(10)
	s.Set(pods, pod("a", "1", "x"))
	_, more, err := s.Since(11)
	must(t, err)
	s.Set(pods, pod("a", "2", "x"))
	<-more
	want(t, "changes", since(t, s, 11), "12 pods default/a(1 x @11)→-; 13 pods -→default/a(2 x @13)")
	want(t, "between them", list(t, s, pods, 12), "")
	want(t, "before", list(t, s, pods, 11), "default/a(1 x @11)")
}

// TestOrder: lists are in the order of namespaces, then of names, as the API server's are.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := objects.New(10)
	for i, name := range []string{"b/a", "a/b", "a-b/a", "a/a-b", "a/a"} {
		namespace, name, _ := strings.Cut(name, "/")
		o := pod(name, strconv.Itoa(i), "")
		o.Namespace = namespace
		s.Set(pods, o)
	}
	want(t, "pods", list(t, s, pods, 0), "a/a(4  @15) a/a-b(3  @14) a/b(1  @12) a-b/a(2  @13) b/a(0  @11)")
	names := map[string]bool{}
	s.Namespaces(pods, names)
	s.Namespaces(services, names)
	want(t, "namespaces", fmt.Sprint(names), "map[a:true a-b:true b:true]")
}

// TestMore: the channel is closed by the next change, and by nothing else.
func TestMore(t *testing.T) {
	t.Parallel()
	s := objects.New(10)
	isClosed := func(more <-chan struct{}) bool {
		select {
		case <-more:
			return true
		default:
			return false
		}
	}
	_, future, err := s.Since(12)
	want(t, "too new", errors.Is(err, objects.ErrFuture), true)
	for i, change := range []func(){
		func() { s.Set(pods, pod("a", "1", "x")) },
		func() { s.Set(pods, pod("a", "1", "y"), pod("b", "2", "x")) },
		func() { s.Set(services, pod("a", "1", "x")) },
		func() { s.Replace(pods, nil) },
		func() { s.Delete(services, named("a")) },
	} {
		_, more, err := s.Since(10)
		must(t, err)
		_, latest, err := s.Since(s.Version())
		must(t, err)
		_, _, err = s.List(pods, 0)
		must(t, err)
		want(t, fmt.Sprintf("closed before change %d", i), isClosed(more) || isClosed(latest), false)
		change()
		want(t, fmt.Sprintf("closed by change %d", i), isClosed(more) && isClosed(latest) && isClosed(future), true)
	}
}

// TestExpired: only the newest changes are kept, and no state from before them.
func TestExpired(t *testing.T) {
	t.Parallel()
	const first, last = 100, 100 + 5*kept
	s := objects.New(first)
	_, _, err := s.Since(first - 1)
	want(t, "before the store", errors.Is(err, objects.ErrExpired), true)
	for version := uint64(first + 1); version <= last; version++ {
		s.Set(pods, pod("a", "1", strconv.FormatUint(version, 10)))
		want(t, "version", s.Version(), version)
		back := max(first, version-min(version, kept))
		if changes, _, err := s.Since(back); err != nil || uint64(len(changes)) != version-back || len(changes) > 0 && changes[0].Version != back+1 {
			t.Fatalf("version %d: %d changes, %v", version, len(changes), err)
		}
	}
	for _, version := range []uint64{1, first, first + 1, last - 2*kept - 1} {
		_, more, err := s.Since(version)
		want(t, fmt.Sprintf("changes since %d have expired", version), errors.Is(err, objects.ErrExpired) && more != nil, true)
		_, _, err = s.List(pods, version)
		want(t, fmt.Sprintf("the state at %d has expired", version), errors.Is(err, objects.ErrExpired), true)
	}
	// The oldest version whose changes are known is known itself, and none before it.
	oldest := uint64(last - 2*kept)
	for ; oldest < last; oldest++ {
		if _, _, err := s.Since(oldest); err == nil {
			break
		}
	}
	want(t, "the oldest", list(t, s, pods, oldest), fmt.Sprintf("default/a(1 %d @%d)", oldest, oldest))
	_, _, err = s.List(pods, oldest-1)
	want(t, "the one before has expired", errors.Is(err, objects.ErrExpired), true)
	for _, f := range []func(uint64) error{
		func(v uint64) error { _, _, err := s.Since(v); return err },
		func(v uint64) error { _, _, err := s.List(pods, v); return err },
	} {
		want(t, "the last", f(last), nil)
		want(t, "the next", errors.Is(f(last+1), objects.ErrFuture), true)
	}
}

// TestHandedOut: what was handed out stays as it was, whatever becomes of the store.
func TestHandedOut(t *testing.T) {
	t.Parallel()
	s := objects.New(0)
	type answer struct {
		changes []objects.Change
		copied  []objects.Change
	}
	var all []answer
	for i := range 3 * kept {
		s.Set(pods, pod("a", "1", strconv.Itoa(i)))
		if i%100 == 0 {
			changes, _, err := s.Since(s.Version() - min(s.Version(), 50))
			must(t, err)
			all = append(all, answer{changes, slices.Clone(changes)})
		}
		if len(all) > 0 { // what a careless reader does later is its own
			_ = append(all[len(all)-1].changes, objects.Change{Version: 1})
		}
	}
	for _, a := range all {
		want(t, "the same changes", slices.Equal(a.changes, a.copied), true)
	}
	changes, _, err := s.Since(s.Version() - kept)
	must(t, err)
	for i, c := range changes {
		want(t, "version", c.Version, s.Version()-kept+1+uint64(i))
	}
}
