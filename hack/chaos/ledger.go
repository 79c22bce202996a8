package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// instance is what one instance of a container has recorded of itself.
type instance struct {
	name  string
	ended bool
	code  int
}

// readLedger returns the instances of a container that have run, in the order of their start.
func readLedger(path string) ([]instance, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []instance
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[1] == "start":
			all = append(all, instance{name: f[0]})
		case len(f) == 3 && f[1] == "end":
			code, err := strconv.Atoi(f[2])
			if err != nil {
				return nil, err
			}
			for i := range all {
				if all[i].name == f[0] {
					all[i].ended, all[i].code = true, code
				}
			}
		default:
			return nil, fmt.Errorf("ledger %s: line %q", path, line)
		}
	}
	return all, nil
}
