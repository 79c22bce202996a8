// Package systemd starts and stops the slices of pods: cgroups that systemd knows as its
// units, as the kubelet's cgroup driver "systemd" makes them.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// jobTimeout bounds what systemd takes to start or stop a slice, which has no process.
const jobTimeout = 30 * time.Second

// booted is there when systemd is the first process: sd_booted(3).
const booted = "/run/systemd/system"

// Booted returns an error unless systemd is the first process of this machine.
func Booted() error {
	info, err := os.Lstat(booted)
	if err != nil {
		return fmt.Errorf("systemd is not the first process of this machine: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("systemd is not the first process of this machine: %s is no directory", booted)
	}
	return nil
}

// Suffix ends the name of a slice.
const Suffix = ".slice"

// Slice returns the name of the slice for a cgroup whose path has these elements: a slice
// a-b.slice is in a.slice, so that a hyphen in an element becomes an underscore
// (pkg/kubelet/cm.CgroupName.ToSystemd).
func Slice(elements ...string) string {
	escaped := make([]string, len(elements))
	for i, e := range elements {
		escaped[i] = strings.ReplaceAll(e, "-", "_")
	}
	return strings.Join(escaped, "-") + Suffix
}

// Path returns the path of the slice's cgroup below the cgroup root.
func Path(slice string) string {
	var path strings.Builder
	name := strings.TrimSuffix(slice, Suffix)
	for i := range len(name) {
		if name[i] == '-' {
			path.WriteString("/" + name[:i] + Suffix)
		}
	}
	return path.String() + "/" + slice
}

// Property is a setting of a unit: see systemd.resource-control(5) and the names on its bus.
type Property struct {
	Name  string
	Value any
}

// Bus speaks to systemd: over the system's bus, and as root without one. It connects when
// it is first used. Its methods are safe for concurrent use.
type Bus struct {
	mu   sync.Mutex
	conn *dbus.Conn
}

// Start starts the slice with its limits, and those that it is in. One that is there already
// gets the limits.
func (b *Bus) Start(ctx context.Context, slice, description string, limits []Property) error {
	properties := append([]dbus.Property{
		dbus.PropDescription(description),
		// It does not end with shutdown.target: its scopes do, in their time.
		{Name: "DefaultDependencies", Value: godbus.MakeVariant(false)},
	}, variants(limits)...)
	err := b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StartTransientUnitContext(ctx, slice, "replace", properties, done)
		return err
	})
	if named(err, "UnitExists") {
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

// Set gives limits to a slice that is there.
func (b *Bus) Set(ctx context.Context, slice string, limits []Property) error {
	err := b.call(ctx, func(ctx context.Context, c *dbus.Conn) error {
		return c.SetUnitPropertiesContext(ctx, slice, true, variants(limits)...)
	})
	if err != nil {
		return fmt.Errorf("setting the limits of %s: %w", slice, err)
	}
	return nil
}

// Stop stops the slice and all that is in it. One that is not there is no error.
func (b *Bus) Stop(ctx context.Context, slice string) error {
	err := b.job(ctx, func(ctx context.Context, c *dbus.Conn, done chan<- string) error {
		_, err := c.StopUnitContext(ctx, slice, "replace", done)
		return err
	})
	if err != nil && !named(err, "NoSuchUnit") {
		return fmt.Errorf("stopping %s: %w", slice, err)
	}
	return nil
}

// job asks for a job and waits until it is done.
func (b *Bus) job(ctx context.Context, ask func(context.Context, *dbus.Conn, chan<- string) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("systemd did not answer within %s", jobTimeout))
	defer cancel()
	done := make(chan string, 1)
	if err := b.call(ctx, func(ctx context.Context, c *dbus.Conn) error { return ask(ctx, c, done) }); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd's job ended as %q", result)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call calls systemd, again on a new connection when the old one has been closed: systemd
// and the bus may be restarted.
func (b *Bus) call(ctx context.Context, f func(context.Context, *dbus.Conn) error) error {
	for tried := false; ; tried = true {
		c, err := b.connect(ctx)
		if err != nil {
			return fmt.Errorf("connecting to systemd: %w", err)
		}
		err = f(ctx, c)
		if !errors.Is(err, godbus.ErrClosed) || tried {
			return err
		}
		b.forget(c)
	}
}

func (b *Bus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		return b.conn, nil
	}
	// The connection outlives the call that needs it first.
	c, err := dbus.NewWithContext(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	b.conn = c
	return c, nil
}

func (b *Bus) forget(c *dbus.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == c {
		c.Close()
		b.conn = nil
	}
}

func variants(list []Property) []dbus.Property {
	out := make([]dbus.Property, len(list))
	for i, p := range list {
		out[i] = dbus.Property{Name: p.Name, Value: godbus.MakeVariant(p.Value)}
	}
	return out
}

// named reports whether err is systemd's error of this name.
func named(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}
