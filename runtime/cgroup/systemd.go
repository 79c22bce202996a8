package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// jobTimeout bounds the time in which systemd starts or stops a slice without processes.
const jobTimeout = 30 * time.Second

// SystemdBooted returns an error unless systemd is the first process of this machine:
// sd_booted(3).
func SystemdBooted() error {
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		return fmt.Errorf("systemd is not the first process of this machine: %w", err)
	}
	return nil
}

// units starts and stops slices of systemd, with those that they are in.
type units interface {
	// Start starts the slice with its limits. One that is there gets the limits.
	Start(ctx context.Context, slice, description string, limits []dbus.Property) error
	// StartScope starts a scope in the slice, with the process, that the program moves others into. One that is
	// there stays as it is.
	StartScope(ctx context.Context, scope, slice string, pid int) error
	// Set gives limits to a slice that is there.
	Set(ctx context.Context, slice string, limits []dbus.Property) error
	// Stop stops the slice and all that is in it. One that is not there is no error.
	Stop(ctx context.Context, slice string) error
}

// systemdBus implements units on the system's D-Bus, and as root without one. It connects when
// it is first used. Its methods are safe for concurrent use.
type systemdBus struct {
	mu   sync.Mutex
	conn *dbus.Conn
}

func (b *systemdBus) Start(ctx context.Context, slice, description string, limits []dbus.Property) error {
	properties := append([]dbus.Property{
		dbus.PropDescription(description),
		property("DefaultDependencies", false), // shutdown.target stops its scopes, not the slice
	}, limits...)
	err := b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StartTransientUnitContext(ctx, slice, "replace", properties, done)
		return err
	})
	if isSystemdError(err, "UnitExists") {
		err = b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
			_, err := c.StartUnitContext(ctx, slice, "replace", done)
			return err
		})
		err = errors.Join(err, b.Set(ctx, slice, limits))
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", slice, err)
	}
	return nil
}

func (b *systemdBus) StartScope(ctx context.Context, scope, slice string, pid int) error {
	properties := []dbus.Property{
		dbus.PropDescription("runonce: the shims of pods"), dbus.PropSlice(slice), dbus.PropPids(uint32(pid)),
		property("DefaultDependencies", false), // as the slices of the pods
		property("Delegate", true),
		property("TasksMax", uint64(math.MaxUint64)),
	}
	err := b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StartTransientUnitContext(ctx, scope, "fail", properties, done)
		return err
	})
	if err != nil && !isSystemdError(err, "UnitExists") {
		return fmt.Errorf("starting %s: %w", scope, err)
	}
	return nil
}

func (b *systemdBus) Set(ctx context.Context, slice string, limits []dbus.Property) error {
	err := b.call(ctx, func(ctx context.Context, c *dbus.Conn) error {
		return c.SetUnitPropertiesContext(ctx, slice, true, limits...)
	})
	if err != nil {
		return fmt.Errorf("setting the limits of %s: %w", slice, err)
	}
	return nil
}

func (b *systemdBus) Stop(ctx context.Context, slice string) error {
	err := b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StopUnitContext(ctx, slice, "replace", done)
		return err
	})
	if err != nil && !isSystemdError(err, "NoSuchUnit") {
		return fmt.Errorf("stopping %s: %w", slice, err)
	}
	return nil
}

// job starts a job of systemd and waits until it is done.
func (b *systemdBus) job(ctx context.Context, start func(context.Context, *dbus.Conn, chan<- string) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("systemd did not finish the job within %s", jobTimeout))
	defer cancel()
	done := make(chan string, 1)
	if err := b.call(ctx, func(ctx context.Context, c *dbus.Conn) error { return start(ctx, c, done) }); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("the job of systemd ended with result %q", result)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call calls systemd, on a new connection when the old one has been closed: systemd and the bus
// may be restarted.
func (b *systemdBus) call(ctx context.Context, f func(context.Context, *dbus.Conn) error) error {
	c, err := b.connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting to systemd: %w", err)
	}
	return f(ctx, c)
}

func (b *systemdBus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	if b.conn != nil {
		b.conn.Close()
	}
	var err error
	// The connection outlives the call that needs it first.
	b.conn, err = dbus.NewWithContext(context.WithoutCancel(ctx))
	return b.conn, err
}

// isSystemdError reports whether err is systemd's error of this name.
func isSystemdError(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}
