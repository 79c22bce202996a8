package podusage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Meminfo returns the fields of /proc/meminfo of the machine whose root is fsys, in bytes.
func Meminfo(fsys fs.FS) (map[string]int64, error) {
	data, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("reading the machine's memory: %w", err)
	}
	fields := map[string]int64{}
	for l := range bytes.Lines(data) {
		name, rest, ok := strings.Cut(string(l), ":")
		words := strings.Fields(rest)
		if !ok || len(words) != 2 || words[1] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			return nil, fmt.Errorf("reading the machine's memory: /proc/meminfo: %s: %q is not a size", name, strings.TrimSpace(rest))
		}
		fields[name] = n << 10
	}
	if fields["MemTotal"] == 0 {
		return nil, errors.New("reading the machine's memory: /proc/meminfo has no MemTotal")
	}
	return fields, nil
}
