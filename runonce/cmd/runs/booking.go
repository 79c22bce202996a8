package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runonce/cmd/filelock"
)

// booking is what a run tells the others.
type booking struct {
	Pods []*v1.Pod `json:"pods"`
}

func writeBooking(f *os.File, pods []*v1.Pod) error { return json.NewEncoder(f).Encode(booking{pods}) }

// other is another run that lives.
type other struct {
	marks string
	pods  []*v1.Pod
}

// Booked returns the pods whose room other runs have booked and that nobody has taken
// from them, in no order. Those that run already are among them. r may have booked
// nothing; outside its turn to plan the answer is advice.
func (r *Run) Booked() ([]*v1.Pod, error) {
	others, err := r.others()
	if err != nil {
		return nil, fmt.Errorf("reading what other runs have booked: %w", err)
	}
	var pods []*v1.Pod
	for _, o := range others {
		for _, pod := range o.pods {
			if _, err := os.Stat(o.mark(pod.UID)); errors.Is(err, fs.ErrNotExist) {
				pods = append(pods, pod)
			}
		}
	}
	return pods, nil
}

// Take tells the other runs that have booked the pod that it is not theirs any more, so
// that they do not start it again. It has to come before the pod is stopped. by is the pod
// that preempts it, nil when there is none.
func (r *Run) Take(pod, by *v1.Pod) error {
	others, err := r.others()
	if err != nil {
		return fmt.Errorf("telling other runs that pod %q is stopped: %w", pod.Name, err)
	}
	for _, o := range others {
		if !slices.ContainsFunc(o.pods, func(p *v1.Pod) bool { return p.UID == pod.UID }) {
			continue
		}
		if err := writeMark(o.mark(pod.UID), by); err != nil {
			return fmt.Errorf("telling another run that pod %q is stopped: %w", pod.Name, err)
		}
	}
	return nil
}

func (o other) mark(uid types.UID) string { return filepath.Join(o.marks, string(uid)) }

// writeMark writes the mark in one step. A run that has ended meanwhile needs none.
func writeMark(path string, by *v1.Pod) error {
	var who types.NamespacedName
	if by != nil {
		who = types.NamespacedName{Namespace: by.Namespace, Name: by.Name}
	}
	data, err := json.Marshal(who)
	if err != nil {
		return err
	}
	draft := path + "." + draftPrefix
	err = os.WriteFile(draft, data, 0o600)
	if err == nil {
		err = os.Rename(draft, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// others reads the bookings of the other runs that live.
func (r *Run) others() ([]other, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []other
	for _, e := range entries {
		name, ok := strings.CutSuffix(filepath.Join(r.dir, e.Name()), bookingExt)
		if !ok || name+takenExt == r.marks {
			continue
		}
		pods, err := readBooking(name + bookingExt)
		if err != nil {
			return nil, err
		}
		if len(pods) > 0 {
			found = append(found, other{name + takenExt, pods})
		}
	}
	return found, nil
}

// readBooking returns what a run has booked, nothing when that has ended.
func readBooking(path string) (pods []*v1.Pod, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if lives, err := filelock.Held(f); err != nil || !lives {
		return nil, err
	}
	var b booking
	if err := json.NewDecoder(f).Decode(&b); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	return b.Pods, nil
}

// sweep removes what runs that were killed have left in the directory. Nobody books
// meanwhile.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	lives := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		name, isBooking := strings.CutSuffix(e.Name(), bookingExt)
		if !isBooking && !strings.HasPrefix(e.Name(), draftPrefix) {
			continue
		}
		if lives[name], err = locked(path); err != nil {
			return err
		}
		if !lives[name] {
			if err := remove(path); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), takenExt); ok && !lives[name] {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// locked tells whether a process keeps the file locked. One that is gone is not.
func locked(path string) (held bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return filelock.Held(f)
}
