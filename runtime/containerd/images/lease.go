package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
)

// LeaseLabel names the process that holds a lease, see LeaseHolder. By it others can tell when
// that has died: a daemon would keep what it left for a day.
const LeaseLabel = "runonce/holder"

const (
	// expiration is containerd's own for leases of clients.
	expiration = 24 * time.Hour
	// releaseTimeout bounds the removal of a lease or a view.
	releaseTimeout = 20 * time.Second
)

// holdLease makes a lease for what is done with the returned context, unless ctx has one: it
// protects what is fetched or read from containerd's garbage collector. release ends it, even
// when ctx is done, and returns the error of the work, joined with its own. When a retry cannot
// help, as on a full disk, it waits until what the work has left is removed.
func holdLease(ctx context.Context, c *client.Client) (held context.Context, release func(error) error, err error) {
	if _, has := leases.FromContext(ctx); has {
		return ctx, func(err error) error { return err }, nil
	}
	lease, err := newLease(ctx, c)
	if err != nil {
		return ctx, nil, err
	}
	return leases.WithLease(ctx, lease.ID), func(failed error) error {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return endLease(cleanup, c, lease, failed)
	}, nil
}

func newLease(ctx context.Context, c *client.Client) (leases.Lease, error) {
	options := []leases.Opt{leases.WithRandomID(), leases.WithExpiration(expiration)}
	// Without a holder the lease ends by itself after a day.
	if self, err := LeaseHolder(); err == nil {
		options = append(options, leases.WithLabel(LeaseLabel, self))
	}
	lease, err := c.LeasesService().Create(ctx, options...)
	if err != nil {
		return lease, fmt.Errorf("making a lease: %w", NativeError(err))
	}
	return lease, nil
}

// endLease is the release of holdLease.
func endLease(ctx context.Context, c *client.Client, lease leases.Lease, failed error) error {
	failed = NativeError(failed)
	if errors.Is(failed, syscall.ENOSPC) {
		failed = errors.Join(failed, freeSpace(leases.WithLease(ctx, lease.ID), c, lease))
	}
	var options []leases.DeleteOpt
	if failure.IsPermanent(failed) || isCorrupt(failed) {
		options = append(options, leases.SynchronousDelete)
	}
	err := IgnoreNotFound(c.LeasesService().Delete(ctx, lease, options...))
	if err != nil {
		err = fmt.Errorf("ending a lease: %w", err)
	}
	return errors.Join(failed, err)
}

// holdPull is holdLease for a pull. When another try may help, what has been fetched is kept, and
// the next pull of the image goes on from there.
func (c *Store) holdPull(ctx context.Context, cl *client.Client, ref string) (held context.Context, release func(error) error, err error) {
	lease, kept := c.takeKept(ctx, cl, ref)
	if !kept {
		if lease, err = newLease(ctx, cl); err != nil {
			return ctx, nil, err
		}
	}
	return leases.WithLease(ctx, lease.ID), func(failed error) error {
		if failed != nil && !failure.IsPermanent(failed) && !isCorrupt(failed) {
			if _, another := c.kept.LoadOrStore(ref, lease); !another {
				return failed
			}
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return endLease(cleanup, cl, lease, failed)
	}, nil
}

// takeKept returns the lease of an earlier pull of the image, unless it has ended.
func (c *Store) takeKept(ctx context.Context, cl *client.Client, ref string) (leases.Lease, bool) {
	v, ok := c.kept.LoadAndDelete(ref)
	if !ok {
		return leases.Lease{}, false
	}
	lease, ok := v.(leases.Lease)
	if !ok {
		return lease, false
	}
	found, err := cl.LeasesService().List(ctx, "id=="+lease.ID)
	return lease, err == nil && len(found) == 1
}

// Release gives up what was fetched of images whose pulls have failed.
func (c *Store) Release(ctx context.Context, cl *client.Client) error {
	var failed []error
	c.kept.Range(func(ref, v any) bool {
		c.kept.Delete(ref)
		if lease, ok := v.(leases.Lease); ok {
			failed = append(failed, endLease(ctx, cl, lease, nil))
		}
		return true
	})
	return errors.Join(failed...)
}

// SweepLeases ends the leases of processes of this machine that have died, so that the garbage
// collector removes what they left. It returns how many there were.
func SweepLeases(ctx context.Context, m leases.Manager) (int, error) {
	all, err := m.List(ctx, `labels."`+LeaseLabel+`"`)
	if err != nil {
		return 0, fmt.Errorf("listing old leases: %w", err)
	}
	ended := 0
	for _, l := range all {
		if !hasDied(l.Labels[LeaseLabel]) {
			continue
		}
		if err := m.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return ended, fmt.Errorf("deleting an old lease: %w", err)
		}
		ended++
	}
	return ended, nil
}

// LeaseHolder identifies this process: boot, PID namespace, PID and, since PIDs are reused, the
// time of its start.
func LeaseHolder() (string, error) {
	space, err := pidSpace()
	if err != nil {
		return "", err
	}
	start, err := process.StartTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %s", space, os.Getpid(), start), nil
}

// pidSpace identifies the boot and the PID namespace.
func pidSpace() (string, error) {
	space, err := os.Readlink("/proc/self/ns/pid")
	if err == nil && process.BootID() == "" {
		err = errors.New("the machine's boot ID is unknown")
	}
	return process.BootID() + " " + space, err
}

// hasDied reports whether a lease's holder has died: always when it is of an earlier boot, and
// never when it is of another PID namespace, of which nothing is known.
func hasDied(holder string) bool {
	here, err := pidSpace()
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
	return !process.Runs(pid, f[3])
}
