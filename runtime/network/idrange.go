package network

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/moby/sys/user"

	"github.com/runonce/runonce/runtime/engine"
)

// idRange is the range of the machine's user and group IDs from which each pod with a user
// namespace gets some that no other pod has, as from the kubelet's manager (pkg/kubelet/userns).
type idRange struct {
	first uint32 // a multiple of engine.UserIDs, never 0
	pods  uint32 // how many pods it has IDs for
}

// allocate returns the first of the IDs for another pod; used are the first IDs of the pods
// that have some.
func (r idRange) allocate(used map[uint32]bool) (uint32, error) {
	for i := range r.pods {
		if first := r.first + i*engine.UserIDs; !used[first] {
			return first, nil
		}
	}
	return 0, fmt.Errorf("could not find an empty slot to allocate a user namespace: the IDs from %d are for %d pods", r.first, r.pods)
}

// readIDRange returns the range that the subuid and subgid files in etc reserve for the user
// kubelet, as the kubelet reads them, else all IDs above those of the machine's own users.
func readIDRange(etc string) (idRange, error) {
	users, err := subordinateIDs(filepath.Join(etc, "subuid"))
	if err != nil {
		return idRange{}, err
	}
	groups, err := subordinateIDs(filepath.Join(etc, "subgid"))
	switch {
	case err != nil:
		return idRange{}, err
	case users != groups:
		return idRange{}, fmt.Errorf("the IDs of user kubelet in %s/subuid and %s/subgid must be the same", etc, etc)
	case users == (idRange{}):
		return idRange{first: engine.UserIDs, pods: math.MaxUint32/engine.UserIDs - 1}, nil
	}
	return users, nil
}

// subordinateIDs reads the entry of user kubelet, which is optional, from a file as in
// subuid(5).
func subordinateIDs(path string) (idRange, error) {
	entries, err := user.ParseSubIDFileFilter(path, func(s user.SubID) bool { return s.Name == "kubelet" })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return idRange{}, fmt.Errorf("reading the IDs of user kubelet: %w", err)
	}
	if len(entries) == 0 {
		return idRange{}, nil
	}
	first, length := entries[0].SubID, entries[0].Count
	if first <= 0 || first%engine.UserIDs != 0 || length <= 0 || length%engine.UserIDs != 0 || first > math.MaxUint32-length {
		return idRange{}, fmt.Errorf("reading the IDs of user kubelet in %s: first ID %d and count %d must be multiples of %d above 0",
			path, first, length, engine.UserIDs)
	}
	return idRange{first: uint32(first), pods: uint32(length / engine.UserIDs)}, nil
}
