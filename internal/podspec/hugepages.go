package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// HugePagesDir has a directory for each size; it is relative to the root of the file system.
const HugePagesDir = "sys/kernel/mm/hugepages"

// HugePageSizes returns the sizes in bytes, sorted; none when the kernel has no huge pages.
func HugePageSizes(root fs.FS) ([]int64, error) {
	entries, err := fs.ReadDir(root, HugePagesDir)
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

// HugePagesFile returns the path of a file about pages of one size.
func HugePagesFile(size int64, name string) string {
	return path.Join(HugePagesDir, fmt.Sprintf("hugepages-%dkB", size>>10), name)
}
