// Package hugepages lists the sizes of huge pages that a kernel supports.
package hugepages

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Dir has a directory for each size; it is relative to the root of the file system.
const Dir = "sys/kernel/mm/hugepages"

// Sizes returns the sizes in bytes, sorted; none when the kernel has no huge pages.
func Sizes(root fs.FS) ([]int64, error) {
	entries, err := fs.ReadDir(root, Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var sizes []int64
	for _, e := range entries {
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err == nil && kib > 0 && kib <= 1<<30 {
			sizes = append(sizes, kib<<10)
		}
	}
	slices.Sort(sizes)
	return sizes, nil
}

// File returns the path of a file about pages of one size.
func File(size int64, name string) string {
	return path.Join(Dir, fmt.Sprintf("hugepages-%dkB", size>>10), name)
}
