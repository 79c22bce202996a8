// Package definitions keeps the objects that the pods of a root were made from or refer to, as they were read, for those
// who want to see them beside the pods. Nothing that runs depends on them. Each is a file, which belongs to the last run
// that has read the object.
package definitions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/podspec"
)

// newObject returns an empty object of the kind, nil for one that is not kept: it neither makes pods nor has data for them.
func newObject(kind string) podspec.Object {
	switch kind {
	case "ConfigMap":
		return &v1.ConfigMap{}
	case "Secret":
		return &v1.Secret{}
	case "ReplicationController":
		return &v1.ReplicationController{}
	case "Deployment":
		return &appsv1.Deployment{}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "DaemonSet":
		return &appsv1.DaemonSet{}
	case "Job":
		return &batchv1.Job{}
	case "CronJob":
		return &batchv1.CronJob{}
	}
	return nil
}

// Dir returns the directory of the objects of a root. It exists as long as there are any.
func Dir(root string) string { return filepath.Join(root, "objects") }

// Extension is how the names of their files end.
const Extension = ".json"

// lockTimeout bounds the wait for another process, which holds the lock as long as it writes a few files.
const lockTimeout = 10 * time.Second

// locked excludes other processes that change the objects of the root.
func locked(root string, f func() error) error {
	return flock.Do(filepath.Join(root, "objects.lock"), lockTimeout, f)
}

// Put keeps the objects, in place of those of their names, and returns those that were not kept before. Of Secrets it
// keeps the keys, and never a value.
func Put(root string, all []podspec.Object) (added []podspec.Object, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	err = locked(root, func() error {
		if err := os.MkdirAll(Dir(root), 0o700); err != nil {
			return err
		}
		for _, o := range all {
			isNew, err := put(root, o)
			if err != nil {
				return fmt.Errorf("%s %q: %w", kindOf(o), o.GetName(), err)
			}
			if isNew {
				added = append(added, o)
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("keeping the objects of the input: %w", err)
	}
	return added, err
}

func put(root string, o podspec.Object) (isNew bool, err error) {
	kept, ok := o.DeepCopyObject().(podspec.Object)
	if !ok || newObject(kindOf(o)) == nil {
		return false, errors.New("objects of this kind are not kept") // a fault of this program
	}
	if secret, ok := kept.(*v1.Secret); ok {
		withoutValues(secret)
	}
	path := pathOf(root, o)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	kept.SetCreationTimestamp(metav1.Now())
	before, err := Decode(old)
	if isNew = err != nil; !isNew { // else there is none, or it is damaged
		kept.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	data, err := json.Marshal(kept)
	if err != nil || bytes.Equal(data, old) {
		return false, err
	}
	return isNew, atomicfile.WriteOrdered(path, data, 0o600)
}

// withoutValues removes all that may say what the keys stand for: kubectl, for one, keeps whole objects in annotations.
func withoutValues(secret *v1.Secret) {
	for key := range secret.Data {
		secret.Data[key] = []byte{}
	}
	secret.StringData, secret.ManagedFields = nil, nil
	maps.DeleteFunc(secret.Annotations, func(key, _ string) bool {
		return key != podspec.AnnotationPath && key != podspec.AnnotationSource
	})
}

// Remove removes the objects that are chosen.
func Remove(root string, chosen func(podspec.Object) bool) error {
	if _, err := os.Stat(Dir(root)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := locked(root, func() error {
		entries, err := os.ReadDir(Dir(root))
		if errors.Is(err, fs.ErrNotExist) { // by now
			return nil
		}
		for _, e := range entries {
			err = errors.Join(err, remove(filepath.Join(Dir(root), e.Name()), chosen))
		}
		_ = os.Remove(Dir(root)) // which fails as long as there are any
		return err
	})
	if err != nil {
		return fmt.Errorf("removing the objects of earlier inputs: %w", err)
	}
	return nil
}

// remove removes a file if its object is chosen, or if it has none.
func remove(path string, chosen func(podspec.Object) bool) error {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a link to nothing
		return err
	}
	if o, err := Decode(data); err == nil && !chosen(o) {
		return nil
	}
	return os.Remove(path)
}

// Decode returns the object of a file.
func Decode(data []byte) (podspec.Object, error) {
	var of metav1.TypeMeta
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, err
	}
	o := newObject(of.Kind)
	if o == nil {
		return nil, fmt.Errorf("objects of the kind %q are not kept", of.Kind)
	}
	return o, json.Unmarshal(data, o)
}

func kindOf(o podspec.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

// pathOf returns the file of an object. Objects are sorted by kind.
func pathOf(root string, o podspec.Object) string {
	return filepath.Join(Dir(root), atomicfile.Name(strings.ToLower(kindOf(o)), o.GetNamespace(), o.GetName())+Extension)
}

// Same reports whether both are the same object, by kind and name.
func Same(a, b podspec.Object) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace()
}
