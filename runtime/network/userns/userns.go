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

// Choose returns the first of the IDs for another pod; taken are the first IDs of the pods
// that have some.
func (r Range) Choose(taken map[uint32]bool) (uint32, error) {
	for i := range r.Pods {
		if first := r.First + i*engine.UserIDs; !taken[first] {
			return first, nil
		}
	}
	return 0, fmt.Errorf("could not find an empty slot to allocate a user namespace: the IDs from %d are for %d pods", r.First, r.Pods)
}

// Source returns the IDs that the machine keeps for the user kubelet, as the kubelet has
// it, else all above those of the machine's own users. etc is the directory of the subuid and
// subgid files.
func Source(etc string) (Range, error) {
	users, err := subordinate(filepath.Join(etc, "subuid"))
	if err != nil {
		return Range{}, err
	}
	groups, err := subordinate(filepath.Join(etc, "subgid"))
	switch {
	case err != nil:
		return Range{}, err
	case users != groups:
		return Range{}, fmt.Errorf("the IDs of user kubelet in %s/subuid and %s/subgid must be the same", etc, etc)
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
