package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
)

// recordFile holds the pod as it was started.
const recordFile = "pod.json"

// store keeps the pods that were started, so that a later process finds them.
type store struct {
	dir string
}

func (s store) path(uid types.UID) string { return filepath.Join(s.dir, string(uid)) }

// record is a pod with what its own JSON form loses.
type record struct {
	*v1.Pod
	// Started is status.startTime, of which the API has whole seconds: a deadline that
	// counts from them comes early.
	Started time.Time `json:"started,omitzero"`
}

// save writes the pod; it is complete or absent, also after a crash.
func (s store) save(pod *v1.Pod) error {
	r := record{Pod: pod}
	if t := pod.Status.StartTime; t != nil {
		r.Started = t.Time
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding pod %q: %w", pod.Name, err)
	}
	dir := s.path(pod.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of pod %q: %w", pod.Name, err)
	}
	return atomicfile.Write(filepath.Join(dir, recordFile), data, 0o600)
}

// list returns the pods in order of namespace and name. A directory without a complete
// record is a pod whose start was cut off before anything of it ran.
func (s store) list() ([]*v1.Pod, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var pods []*v1.Pod
	for _, e := range entries {
		pod, err := s.load(types.UID(e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
	return pods, nil
}

func (s store) load(uid types.UID) (*v1.Pod, error) {
	path := filepath.Join(s.path(uid), recordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	r := record{Pod: &v1.Pod{}}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("decoding pod %s: %w", path, err)
	}
	if !r.Started.IsZero() {
		t := metav1.NewTime(r.Started)
		r.Status.StartTime = &t
	}
	return r.Pod, nil
}

// keep writes down what later processes are to know of the pod, in a file beside its record;
// it is complete or absent, also after a crash.
func (s store) keep(uid types.UID, file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", file, err)
	}
	return atomicfile.Write(filepath.Join(s.path(uid), file), data, 0o600)
}

// recall reads what keep wrote. The error wraps fs.ErrNotExist when there is nothing; v is
// not to be used after any.
func (s store) recall(uid types.UID, file string, v any) error {
	data, err := os.ReadFile(filepath.Join(s.path(uid), file))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// remove deletes the pod's directory, the record last: as long as anything is left, a
// later process finds the pod and can finish the work.
func (s store) remove(uid types.UID) error {
	entries, err := os.ReadDir(s.path(uid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == recordFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.path(uid), e.Name())); err != nil {
			return fmt.Errorf("removing pod directory: %w", err)
		}
	}
	if err := os.RemoveAll(s.path(uid)); err != nil {
		return fmt.Errorf("removing pod directory: %w", err)
	}
	return nil
}
