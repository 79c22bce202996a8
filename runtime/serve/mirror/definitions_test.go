package mirror_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/definitions"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// put keeps objects as a run does.
func (m *machine) put(t testing.TB, all ...podspec.Object) {
	t.Helper()
	_, err := definitions.Put(m.root, all)
	must(t, err)
}

// drop removes those of a name.
func (m *machine) drop(t testing.TB, name string) {
	t.Helper()
	must(t, definitions.Remove(m.root, func(o podspec.Object) bool { return o.GetName() == name }))
}

func newConfigMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": value},
	}
}

// TestDefinitions: what runs keep comes, changes and goes, with its namespace.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m := n.mirror(t, &spy{})
	f := follow(t, m, mirror.ConfigMaps)
	want(t, "none", f.changes(), "")
	n.put(t, newConfigMap("a", "1"), newConfigMap("b", "1"))
	want(t, "two", f.changes(), "ADDED a\nADDED b")
	a := types.NamespacedName{Namespace: "default", Name: "a"}
	before, _ := m.Store().Get(mirror.ConfigMaps, a)
	n.put(t, newConfigMap("a", "2"), newConfigMap("b", "1"))
	want(t, "one has changed", f.changes(), "MODIFIED a")
	now, _ := m.Store().Get(mirror.ConfigMaps, a)
	want(t, "UID", now.GetUID(), before.GetUID())
	if now.GetUID() == "" || !now.GetCreationTimestamp().Time.Equal(before.GetCreationTimestamp().Time) {
		t.Errorf("%+v, before %+v", now, before)
	}
	want(t, "unchanged", f.changes(), "")

	// What others write there is nothing, whatever it is.
	dir := definitions.Dir(n.root)
	must(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte("{"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "pod.json"), []byte(`{"kind":"Pod"}`), 0o600))
	must(t, os.Symlink("configmap_default_a.json", filepath.Join(dir, "link.json")))
	must(t, os.Mkdir(filepath.Join(dir, "dir.json"), 0o700))
	want(t, "others", f.changes(), "")
	must(t, os.Remove(filepath.Join(dir, "dir.json")))

	other := newConfigMap("c", "1")
	other.Namespace = "own"
	n.put(t, other)
	want(t, "elsewhere", f.changes(), "ADDED own/c")
	want(t, "namespaces", list(t, m, mirror.Namespaces), "/default\n/own")
	n.drop(t, "c")
	n.drop(t, "a")
	want(t, "removed", f.changes(), "DELETED a\nDELETED own/c")
	want(t, "namespaces", list(t, m, mirror.Namespaces), "/default")
	n.drop(t, "b")
	want(t, "the last one", f.changes(), "DELETED b")
}

// TestDefinitionsAlone: a change is seen without a client that asks.
func TestDefinitionsAlone(t *testing.T) {
	t.Parallel()
	n := newMachine(t)
	m, _ := run(t, n)
	n.put(t, newConfigMap("a", "1"))
	eventuallyLists(t, m, "the first one", mirror.ConfigMaps, "a\n")
	n.put(t, newConfigMap("b", "1"))
	eventuallyLists(t, m, "another one", mirror.ConfigMaps, "a\nb\n")
	n.drop(t, "a")
	n.drop(t, "b")
	eventuallyLists(t, m, "none", mirror.ConfigMaps, "")
	n.put(t, newConfigMap("c", "1"))
	eventuallyLists(t, m, "one again", mirror.ConfigMaps, "c\n")
}
