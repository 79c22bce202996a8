package definitions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/definitions"
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

// named gives an object its kind and name.
func named[T podspec.Object](o T, gv schema.GroupVersion, kind, name string) T {
	o.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	o.SetNamespace("default")
	o.SetName(name)
	return o
}

func configMap(name, value string) *v1.ConfigMap {
	return named(&v1.ConfigMap{Data: map[string]string{"key": value}}, v1.SchemeGroupVersion, "ConfigMap", name)
}

// kept returns what is kept, in lines.
func kept(t testing.TB, root string) (all []podspec.Object, lines string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(definitions.Dir(root), "*"))
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		must(t, err)
		o, err := definitions.Decode(data)
		must(t, err)
		all = append(all, o)
		lines += fmt.Sprintf("%s/%s ", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
	return all, lines
}

// TestKinds: each kind comes back as it was, with a time of creation that stays, and nothing else is kept.
func TestKinds(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	all := []podspec.Object{
		configMap("a", "1"),
		named(&v1.ReplicationController{Spec: v1.ReplicationControllerSpec{Selector: map[string]string{"a": "b"}}}, v1.SchemeGroupVersion, "ReplicationController", "a"),
		named(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}, appsv1.SchemeGroupVersion, "Deployment", "a"),
		named(&appsv1.ReplicaSet{}, appsv1.SchemeGroupVersion, "ReplicaSet", "a"),
		named(&appsv1.StatefulSet{}, appsv1.SchemeGroupVersion, "StatefulSet", "a"),
		named(&appsv1.DaemonSet{}, appsv1.SchemeGroupVersion, "DaemonSet", "a"),
		named(&batchv1.Job{}, batchv1.SchemeGroupVersion, "Job", "a"),
		named(&batchv1.CronJob{}, batchv1.SchemeGroupVersion, "CronJob", "a"),
		configMap(strings.Repeat("long.", 50), "1"),
	}
	added, err := definitions.Put(root, all)
	must(t, err)
	want(t, "added", len(added), len(all))
	first, lines := kept(t, root)
	want(t, "kept", len(first), len(all))
	for _, o := range all {
		i := slices.IndexFunc(first, func(k podspec.Object) bool { return definitions.Same(o, k) })
		if i < 0 {
			t.Fatalf("%s: not among %s", o.GetName(), lines)
		}
		if created := first[i].GetCreationTimestamp(); created.IsZero() || o.GetCreationTimestamp() == created {
			t.Errorf("%T was created at %v, and that of the caller too", o, created)
		}
		first[i].SetCreationTimestamp(metav1.Time{})
		want(t, "kept", fmt.Sprintf("%T %+v", first[i], first[i]), fmt.Sprintf("%T %+v", o, o))
	}
	_, err = definitions.Put(root, []podspec.Object{named(&v1.Pod{}, v1.SchemeGroupVersion, "Pod", "a")})
	want(t, "error", fmt.Sprint(err), `keeping the objects of the input: Pod "a": objects of this kind are not kept`)
}

// TestChanges: an object takes the place of the one before, and is as old.
func TestChanges(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(o podspec.Object) int {
		added, err := definitions.Put(root, []podspec.Object{o})
		must(t, err)
		return len(added)
	}
	want(t, "added", put(configMap("a", "1")), 1)
	file := filepath.Join(definitions.Dir(root), "configmap_default_a.json")
	// It is an hour old.
	old := configMap("a", "1")
	old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	data, err := json.Marshal(old)
	must(t, err)
	must(t, os.WriteFile(file, data, 0o600))
	before, err := os.Stat(file)
	must(t, err)
	want(t, "added again", put(configMap("a", "1")), 0)
	unchanged, err := os.Stat(file)
	must(t, err)
	want(t, "the same file", os.SameFile(before, unchanged), true)
	want(t, "changed", put(configMap("a", "2")), 0)
	all, _ := kept(t, root)
	want(t, "created", all[0].GetCreationTimestamp().Time.Equal(old.CreationTimestamp.Time), true)
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	want(t, "in place of a damaged one", put(configMap("a", "2")), 1)
	info, err := os.Stat(file)
	must(t, err)
	want(t, "mode", info.Mode().Perm(), 0o600)
	_, lines := kept(t, root)
	want(t, "kept", lines, "ConfigMap/a ")
}

// TestSecrets: of a Secret, nothing is kept that may have a value.
func TestSecrets(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	secret := named(&v1.Secret{
		Type: v1.SecretTypeBasicAuth, Data: map[string][]byte{"password": []byte("hunter2")}, StringData: map[string]string{"more": "hunter2"},
	}, v1.SchemeGroupVersion, "Secret", "a")
	secret.Annotations = map[string]string{
		v1.LastAppliedConfigAnnotation: `{"stringData":{"password":"hunter2"}}`, podspec.AnnotationPath: "/dir/a.yaml", podspec.AnnotationSource: "a.yaml:1",
	}
	secret.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "hunter2"}}
	_, err := definitions.Put(root, []podspec.Object{secret})
	must(t, err)
	want(t, "that of the caller", string(secret.Data["password"]), "hunter2")
	data, err := os.ReadFile(filepath.Join(definitions.Dir(root), "secret_default_a.json"))
	must(t, err)
	if bytes.Contains(data, []byte("hunter")) || bytes.Contains(data, []byte("aHVudGVy")) {
		t.Errorf("there is a value: %s", data)
	}
	all, _ := kept(t, root)
	own, ok := all[0].(*v1.Secret)
	if _, has := own.Data["password"]; !ok || !has || len(own.Data) != 1 || own.Type != v1.SecretTypeBasicAuth {
		t.Errorf("kept: %+v", all[0])
	}
	want(t, "from", own.Annotations[podspec.AnnotationPath], "/dir/a.yaml")
}

// TestRemove: what is chosen goes, with what nobody can use, and at last the directory.
func TestRemove(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must(t, definitions.Remove(root, func(podspec.Object) bool { return true }))
	_, err := definitions.Put(root, []podspec.Object{configMap("a", "1"), configMap("b", "1")})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(definitions.Dir(root), "configmap_default_c.json.tmp"), []byte("{"), 0o600))
	must(t, definitions.Remove(root, func(o podspec.Object) bool { return o.GetName() == "a" }))
	_, lines := kept(t, root)
	want(t, "left", lines, "ConfigMap/b ")
	must(t, definitions.Remove(root, func(podspec.Object) bool { return true }))
	if _, err := os.Stat(definitions.Dir(root)); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

// TestTogether: processes that keep and remove objects at the same time do not disturb each other.
func TestTogether(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				_, err := definitions.Put(root, []podspec.Object{configMap(fmt.Sprint("own-", i), fmt.Sprint(n)), configMap("shared", fmt.Sprint(i, n))})
				if err != nil {
					t.Error(err)
				}
				if err := definitions.Remove(root, func(o podspec.Object) bool { return o.GetName() == fmt.Sprint("own-", i) || n%7 == 0 }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must(t, definitions.Remove(root, func(podspec.Object) bool { return true }))
}
