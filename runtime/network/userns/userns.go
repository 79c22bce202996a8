// Package userns gives each pod with a user namespace a range of the machine's user and
// group IDs that no other pod has, as the kubelet's manager does (pkg/kubelet/userns).
package userns

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/runonce/runonce/runtime/engine"
)

// Range is where pods get their IDs from.
type Range struct {
	First uint32 // a multiple of engine.UserIDs, never 0
	Pods  uint32 // for how many pods there are IDs
}

// Book records which pod has which IDs: a file for each pod, named after its first ID, so
// that several processes can use it at once, and later ones find what is taken.
type Book struct {
	// Dir holds the files. It is made when it is needed.
	Dir string
	// Etc holds the machine's subuid and subgid files.
	Etc string
}

// Ensure returns the first of the pod's IDs, which it gives out on the first call.
func (b Book) Ensure(uid string) (uint32, error) {
	taken, err := b.taken()
	if err != nil {
		return 0, err
	}
	for first, owner := range taken {
		if owner == uid {
			return first, nil
		}
	}
	r, err := b.source()
	if err != nil {
		return 0, err
	}
	note, err := b.note(uid)
	if err != nil {
		return 0, fmt.Errorf("recording user IDs: %w", err)
	}
	defer func() { _ = os.Remove(note) }()
	for i := range r.Pods {
		first := r.First + i*engine.UserIDs
		if _, ok := taken[first]; ok {
			continue
		}
		// It appears with its content, or not at all when another process was faster.
		err := os.Link(note, filepath.Join(b.Dir, strconv.FormatUint(uint64(first), 10)))
		if err == nil {
			return first, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return 0, fmt.Errorf("recording user IDs: %w", err)
		}
	}
	return 0, fmt.Errorf("could not find an empty slot to allocate a user namespace: the IDs from %d are for %d pods", r.First, r.Pods)
}

// Release gives the pod's IDs back. A pod without any is no error.
func (b Book) Release(uid string) error {
	if err := os.Remove(b.notePath(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("releasing user IDs: %w", err)
	}
	taken, err := b.taken()
	if err != nil {
		return err
	}
	for first, owner := range taken {
		if owner != uid {
			continue
		}
		err := os.Remove(filepath.Join(b.Dir, strconv.FormatUint(uint64(first), 10)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("releasing user IDs: %w", err)
		}
	}
	_ = os.Remove(b.Dir) // when it is empty
	return nil
}

// taken returns the owners of ranges by their first ID.
func (b Book) taken() (map[uint32]string, error) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading which user IDs are taken: %w", err)
	}
	taken := map[uint32]string{}
	for _, e := range entries {
		first, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue // not finished
		}
		owner, err := os.ReadFile(filepath.Join(b.Dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading which user IDs are taken: %w", err)
		}
		taken[uint32(first)] = string(owner)
	}
	return taken, nil
}

func (b Book) notePath(uid string) string { return filepath.Join(b.Dir, ".note-"+uid) }

// note writes the pod's UID to a file with a name that is no number. Nobody else works on
// the same pod.
func (b Book) note(uid string) (string, error) {
	f, err := b.open(uid)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(uid)
	// A power cut must not leave a range that belongs to nobody.
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// open opens the pod's note. The last pod of all takes the directory away with it.
func (b Book) open(uid string) (*os.File, error) {
	for range 10 {
		if err := os.MkdirAll(b.Dir, 0o700); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(b.notePath(uid), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("directory %s comes and goes", b.Dir)
}

// source returns the IDs that the machine keeps for the user kubelet, as the kubelet has
// it, else all above those of the machine's own users.
func (b Book) source() (Range, error) {
	users, err := subordinate(filepath.Join(b.Etc, "subuid"))
	if err != nil {
		return Range{}, err
	}
	groups, err := subordinate(filepath.Join(b.Etc, "subgid"))
	switch {
	case err != nil:
		return Range{}, err
	case users != groups:
		return Range{}, fmt.Errorf("the IDs of user kubelet in %s/subuid and %s/subgid must be the same", b.Etc, b.Etc)
	case users == (Range{}):
		return Range{First: engine.UserIDs, Pods: math.MaxUint32/engine.UserIDs - 1}, nil
	}
	return users, nil
}

// subordinate reads the entry of user kubelet, which need not be there, from a file as in
// subuid(5).
func subordinate(path string) (Range, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Range{}, nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("reading the IDs of user kubelet: %w", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "kubelet:")
		if !ok {
			continue
		}
		from, count, _ := strings.Cut(rest, ":")
		first, err1 := strconv.ParseUint(from, 10, 32)
		length, err2 := strconv.ParseUint(count, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return Range{}, fmt.Errorf("reading the IDs of user kubelet in %s: %w", path, err)
		}
		if first == 0 || first%engine.UserIDs != 0 || length == 0 || length%engine.UserIDs != 0 || first+length > math.MaxUint32 {
			return Range{}, fmt.Errorf("reading the IDs of user kubelet in %s: %q must be multiples of %d above 0", path, rest, engine.UserIDs)
		}
		return Range{First: uint32(first), Pods: uint32(length / engine.UserIDs)}, nil
	}
	return Range{}, nil
}
