// Package lease keeps from containerd's garbage collector what this process is fetching or
// looking at, in a way that others can tell when it has died: a daemon would keep the remains
// for a day.
package lease

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
)

// Label names the process that holds a lease, see Self.
const Label = "runonce/holder"

const (
	// expiration is containerd's own for leases of clients.
	expiration = 24 * time.Hour
	// releaseTimeout bounds the end of a lease.
	releaseTimeout = 20 * time.Second
)

// Hold makes a lease for what is done under the returned context, unless that is held
// already. release ends it, also when ctx is done.
func Hold(ctx context.Context, c *client.Client) (held context.Context, release func() error, err error) {
	options := []leases.Opt{leases.WithRandomID(), leases.WithExpiration(expiration)}
	// Without a name the lease ends by itself, a day late.
	if self, err := Self(); err == nil {
		options = append(options, leases.WithLabel(Label, self))
	}
	held, done, err := c.WithLease(ctx, options...)
	if err != nil {
		return ctx, nil, fmt.Errorf("making a lease: %w", err)
	}
	return held, func() error {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(held), releaseTimeout)
		defer cancel()
		if err := done(cleanup); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("ending a lease: %w", err)
		}
		return nil
	}, nil
}

// Sweep ends the leases of processes of this machine that are gone, so that the garbage
// collector may have what they left half-done. It returns how many there were.
func Sweep(ctx context.Context, m leases.Manager) (int, error) {
	all, err := m.List(ctx, `labels."`+Label+`"`)
	if err != nil {
		return 0, fmt.Errorf("listing old leases: %w", err)
	}
	ended := 0
	for _, l := range all {
		if !gone(l.Labels[Label]) {
			continue
		}
		if err := m.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return ended, fmt.Errorf("deleting an old lease: %w", err)
		}
		ended++
	}
	return ended, nil
}

// Self names this process: the boot and the PID namespace that its PID is from, the PID,
// and the time of its start, since PIDs come again.
func Self() (string, error) {
	home, err := home()
	if err != nil {
		return "", err
	}
	start, err := startOf(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %s", home, os.Getpid(), start), nil
}

// home names the boot and the PID namespace.
func home() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + " " + space, nil
}

// startOf returns when the process was started, in ticks since the boot, and an error when
// it does not run.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The program's name, in parentheses, may hold anything.
	_, rest, _ := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	fields := strings.Fields(rest) // state is field 3 of proc(5), the time of the start 22
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// gone reports whether the holder has died. Of another PID namespace's nothing is known, of
// an earlier boot's everything.
func gone(holder string) bool {
	here, err := home()
	f := strings.Fields(holder)
	if err != nil || len(f) != 4 {
		return false
	}
	boot, _, _ := strings.Cut(here, " ")
	if f[0] != boot {
		return true
	}
	if f[0]+" "+f[1] != here {
		return false
	}
	pid, err := strconv.Atoi(f[2])
	if err != nil {
		return false
	}
	start, err := startOf(pid)
	return err != nil || start != f[3]
}
