package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// instance is what one instance of a container has recorded of itself.
type instance struct {
	name  string
	start int64 // since boot, in ns, as end
	end   int64
	ended bool
	code  int
	// stopped says that it was told to end before it had done its work.
	stopped bool
	// overlaps says that another instance ran when this one started.
	overlaps bool
}

// patience is how long a process may take for its first steps on a busy machine.
const patience = time.Minute

// awaitLedger reads a ledger. If the container runs, it waits until its newest instance has written its start.
func awaitLedger(path string, runs bool) ([]instance, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		all, err := readLedger(path)
		if err != nil || !runs || len(all) > 0 && !all[len(all)-1].ended || time.Now().After(deadline) {
			return all, err
		}
	}
}

// readLedger returns the instances of a container that have run, in the order of their start.
func readLedger(path string) ([]instance, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []instance
	for line := range strings.Lines(string(text)) {
		all, err = enter(all, strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("ledger %s: line %q: %w", path, line, err)
		}
	}
	return all, nil
}

// enter adds a line of a ledger: NAME start TIME [overlaps], or NAME end CODE TIME [stopped].
func enter(all []instance, f []string) ([]instance, error) {
	switch {
	case (len(f) == 3 || len(f) == 4) && f[1] == "start":
		start, err := strconv.ParseInt(f[2], 10, 64)
		return append(all, instance{name: f[0], start: start, overlaps: len(f) == 4}), err
	case (len(f) == 4 || len(f) == 5) && f[1] == "end":
		code, err1 := strconv.Atoi(f[2])
		end, err2 := strconv.ParseInt(f[3], 10, 64)
		for i := range all {
			if all[i].name == f[0] {
				all[i].ended, all[i].code, all[i].end, all[i].stopped = true, code, end, len(f) == 5
			}
		}
		return all, errors.Join(err1, err2)
	}
	return all, errors.New("is neither a start nor an end")
}
