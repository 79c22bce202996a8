// Package containerd is the engine on containerd: one that runs inside this process, one inside
// another process of ours, or a daemon. It is the only package but the shim that imports
// containerd.
package containerd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/runtime/containerd/cache"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/imagestore"
	"github.com/runonce/runonce/runtime/containerd/keyed"
	"github.com/runonce/runonce/runtime/containerd/lease"
	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/runtimeclass"
)

var _ engine.Engine = (*Engine)(nil)

// ErrUnusable says that the container engine cannot be used at all: there is no runc, the
// socket is missing or dead, something else serves it.
var ErrUnusable = errs.ErrUnusable

// cleanupTimeout bounds what is done after a failure or the end of a context.
const cleanupTimeout = 20 * time.Second

// Options say which containerd to use and where to keep files.
type Options struct {
	// Root keeps images, snapshots and records; it outlives a reboot. State need not.
	// Both are absolute.
	Root  string
	State string
	// Namespace is containerd's; empty means "runonce".
	Namespace string
	// Address is the socket of a containerd daemon. Empty means the embedded containerd.
	Address string
	// RuncPath is the OCI runtime; empty means runc, looked up in PATH and the usual places.
	RuncPath string
	// Handlers are the runtimes that pods may ask for, beside runc. One that is called runc
	// is the runtime of all pods that ask for none.
	Handlers []runtimeclass.Handler
	// Snapshotter is containerd's; empty means overlayfs, or native where the embedded
	// containerd finds no overlayfs.
	Snapshotter string
	// CertsDir holds a directory with a hosts.toml for each registry; empty means
	// /etc/containerd/certs.d.
	CertsDir string
	// Log takes what is not an error of the caller's; nil drops it.
	Log *slog.Logger
}

// Engine starts, watches and removes containers by containerd. It implements
// engine.Engine and engine.Images.
type Engine struct {
	o      Options
	cache  *cache.Cache
	images *imagestore.Store
	pods   keyed.Mutex // task creation and deletion, one at a time in a pod
	pulls  keyed.Mutex
	notes  keyed.Mutex // of containers' records

	opening sync.Mutex // held while a session is replaced
	mu      sync.Mutex
	current *link.Session

	cancel context.CancelFunc
	work   sync.WaitGroup // background work that Close waits for
	tidy   chan struct{}  // bounds the deletion of ended tasks

	deleted atomic.Bool // something was deleted whose files are the garbage collector's
}

// Open connects to the daemon, or starts the embedded containerd, or becomes the client of
// the process of ours that did. An engine that cannot be used gives an error that wraps
// ErrUnusable, within ten seconds, or thirty when it has to wait for another process of ours.
// The engine lives until Close, whatever becomes of ctx.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	e := &Engine{o: o, cache: cache.New(), images: imagestore.New(filepath.Join(o.Root, "users")), tidy: make(chan struct{}, 2)}
	if err := os.MkdirAll(e.recordDir(), 0o700); err != nil {
		return nil, errs.Unusablef("making the directory of the containers' records: %w", err)
	}
	if err := e.images.Sweep(); err != nil {
		return nil, errs.Unusablef("%w", err)
	}
	s, err := link.Connect(ctx, o.link())
	if err != nil {
		return nil, err
	}
	e.current = s
	if n, err := lease.Sweep(namespaces.WithNamespace(ctx, o.Namespace), s.LeasesService()); err != nil || n > 0 {
		o.Log.Debug("leases of processes that are gone", "ended", n, "error", err)
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	synced := make(chan error, 1)
	e.work.Go(func() { e.watch(background, synced) })
	select {
	case err = <-synced:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, e.close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Close ends the engine's work, once what was deleted is gone from the disk. Containers
// run on. When this process serves containerd,
// its clients take over.
func (e *Engine) Close() error { return e.close(context.Background()) }

func (e *Engine) close(ctx context.Context) error {
	if e.cancel != nil {
		e.cancel()
	}
	e.work.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil
	}
	var errs []error
	if e.current.Server != nil && e.deleted.Load() {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		errs = append(errs, e.current.Server.Collect(ctx))
	}
	errs = append(errs, e.current.Close())
	e.current = nil
	return errors.Join(errs...)
}

func (o *Options) complete() error {
	if os.Geteuid() != 0 {
		return errs.Unusablef("starting containers needs root")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Namespace == "" {
		o.Namespace = "runonce"
	}
	if o.CertsDir == "" {
		o.CertsDir = "/etc/containerd/certs.d"
	}
	o.Address = strings.TrimPrefix(o.Address, "unix://")
	for _, path := range []*string{&o.Root, &o.State, &o.Address} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return errs.Unusablef("finding %q: %w", *path, err)
		}
		*path = abs
	}
	if o.Root == "" || o.State == "" || o.Root == o.State {
		return errs.Unusablef("the root and the state directory must be given and differ")
	}
	return o.findRuntimes()
}

func (o *Options) link() link.Options {
	return link.Options{
		Root: o.Root, State: o.State, Namespace: o.Namespace, Address: o.Address,
		Handlers: o.Handlers, Snapshotter: o.Snapshotter, Log: o.Log,
	}
}

func (e *Engine) recordDir() string { return filepath.Join(e.o.Root, "containers") }

func (e *Engine) recordPath(id string) string {
	return filepath.Join(e.recordDir(), id+".json")
}
