package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ledger keeps a record of this container outside the container's reach: a line when it starts
// and one when it ends, with a name of its own that it also prints, and the time since boot in ns.
func ledger(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("usage: ledger FILE CODE [DURATION]")
	}
	code, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var over <-chan time.Time
	if len(args) == 3 {
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		over = time.After(d)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	name := strings.ToLower(rand.Text()[:10])
	now, err := sinceBoot()
	if err != nil {
		return err
	}
	start := []string{args[0], name, "start", now}
	// The end of an instance that is killed is not in its ledger, but its lock goes with it.
	lock, err := os.OpenFile(args[0]+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		start = append(start, "overlaps")
	}
	if err := appendTo(start); err != nil {
		return err
	}
	fmt.Println("instance", name)
	stopped := false
	select {
	case <-over:
	case <-term:
		stopped = true
	}
	if now, err = sinceBoot(); err != nil {
		return err
	}
	end := []string{args[0], name, "end", args[1], now}
	if stopped {
		end = append(end, "stopped")
	}
	if err := appendTo(end); err != nil {
		return err
	}
	return exitCode(code)
}
