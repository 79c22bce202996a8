package main

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func diary(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: diary FILE [DURATION]")
	}
	d, err := duration(args[1:])
	if err != nil {
		return err
	}
	note := func(what string) error {
		now, err := sinceBoot()
		if err != nil {
			return err
		}
		return appendTo([]string{args[0], what, now})
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	if err := note("start"); err != nil {
		return err
	}
	<-c
	if err := note("term"); err != nil {
		return err
	}
	if d > 0 {
		wait(d)
	}
	return note("end")
}

// sinceBoot returns the time since the machine was booted, in ns.
func sinceBoot() (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return "", err
	}
	return strconv.FormatInt(now.Nano(), 10), nil
}
