// Package containerd is the engine on containerd: one that runs inside this process or inside
// another process of ours, or a daemon. Only it, its sub-packages and the shim import
// containerd.
package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/locker"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/image"
)

var _ engine.Engine = (*Engine)(nil)

// ErrUnusable says that the container engine cannot be used at all: there is no runc, or the
// socket is missing or dead or belongs to something else.
var ErrUnusable = failure.ErrUnusable

// cleanupTimeout bounds the cleanup after a failure or the end of a context.
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
	// RuncPath is the OCI runtime, a path or a name that is looked up in PATH and the usual places; empty means crun if
	// it works on this machine, else runc.
	RuncPath string
	// Libexec is the directory with the crun that comes with this program, which is preferred to others; empty for none.
	Libexec string
	// Trial is how OCI runtimes other than runc are tried before they are used for the first time;
	// nil for not at all: then runc comes before crun.
	Trial *Trial
	// Handlers are the runtimes that pods may ask for, in addition to runc. One with the name
	// runc is the runtime of all pods that ask for none.
	Handlers []Handler
	// AdoptShim, if set, is called with the process of each shim that this program starts for a pod, before
	// that has started anything: it runs in the caller's cgroup.
	AdoptShim func(ctx context.Context, podUID string, pid int)
	// StartsNothing says that no container will be started, so that no OCI runtime has to be
	// installed. Those that run are stopped with the one that they were started with.
	StartsNothing bool
	// Looks says that containers are only listed, as they are now, and that commands are run in them. With an embedded
	// engine, their shims are not asked then, unless that is the only way to know.
	Looks bool
	// CertsDir holds a directory with a hosts.toml for each registry; empty means
	// /etc/containerd/certs.d.
	CertsDir string
	// Credentials says where the credentials of registries are.
	Credentials image.KeychainOptions
	// VerifierDir has the programs that must accept an image before it is pulled; empty for none.
	VerifierDir string
	// PullTimeout ends a pull to which nothing has come for so long; 0 means never.
	PullTimeout time.Duration
	// Journal is the socket of the journal that gets the logs of new containers as well; empty for none.
	Journal string
	// Log gets messages that are not errors of the caller; nil drops them.
	Log *slog.Logger
	// Progress, if set, is called when images are pulled or unpacked, and while that lasts.
	// Calls for different images may overlap.
	Progress func(engine.Transfer)
}

// Registries says how images are pulled.
func (o Options) Registries() images.Registries {
	r := images.Registries{
		CertsDir: cmp.Or(o.CertsDir, "/etc/containerd/certs.d"), Keychain: image.NewKeychain(o.Credentials), Timeout: o.PullTimeout,
	}
	if o.VerifierDir != "" {
		r.Verifier = images.NewVerifier(o.VerifierDir)
	}
	return r
}

// Engine starts, watches and removes containers with containerd. It implements engine.Engine.
type Engine struct {
	o           Options
	chosen      Choice
	containers  *containerStore
	images      *images.Store
	registries  images.Registries
	podLocks    locker.Locker // by pod UID: task creation and deletion, one at a time
	recordLocks locker.Locker // by path of the exit record

	opening sync.Mutex // held while a session is replaced
	mu      sync.Mutex
	current *session

	cancel    context.CancelFunc
	work      sync.WaitGroup // background work that Close waits for
	deletions chan struct{}  // bounds the deletion of ended tasks
	removals  chan struct{}  // bounds what removing a container asks of its shim
	signals   chan struct{}  // bounds the calls that stop containers, which start processes
	timeouts  runtimeTimeouts
	heartbeat heartbeat // of a daemon

	unresolved sync.Map // IDs of containers that resolve waits for

	deleted atomic.Bool // something was deleted whose files the garbage collector removes
}

// Open connects to the daemon, or starts the embedded containerd, or becomes a client of the
// process of ours that did. When the engine cannot be used the error wraps ErrUnusable, and
// comes within ten seconds, or thirty when it has to wait for another process of ours. The
// engine works until Close, even when ctx is done. A process may start the embedded containerd
// for one engine at a time, since containerd has process-wide settings.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	server.RedirectLog(ctx, o.Log)
	chosen, err := o.tryRuntimes(ctx)
	if err != nil {
		return nil, err
	}
	if o.Looks = o.Looks && o.Address == ""; o.Looks {
		if e, ok, err := openToLook(ctx, o, chosen); ok || err != nil {
			return e, err
		}
		o.Looks = false
	}
	e := newEngine(o)
	e.chosen = chosen
	if err := os.MkdirAll(o.recordDir(), 0o700); err != nil {
		return nil, failure.Unusablef("making the directory of the exit records: %w", err)
	}
	if err := errors.Join(e.images.Sweep(), process.Sweep(e.o.execDir(), os.RemoveAll)); err != nil {
		return nil, failure.Unusablef("%w", err)
	}
	s, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	if n, err := images.SweepLeases(namespaces.WithNamespace(ctx, o.Namespace), s.LeasesService()); err != nil || n > 0 {
		o.Log.Debug("ended the leases of dead processes", "count", n, "error", err)
	}
	background := e.begin(ctx, s)
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

func newEngine(o Options) *Engine {
	return &Engine{
		o: o, containers: newContainerStore(), images: images.New(filepath.Join(o.Root, "users"), o.Progress), timeouts: defaultTimeouts,
		registries: o.Registries(),
		deletions:  make(chan struct{}, 2), signals: make(chan struct{}, 8*goruntime.NumCPU()), removals: make(chan struct{}, 8*goruntime.NumCPU()),
	}
}

// begin has the engine work with the session. The context of work in the background is that of ctx, until the engine
// is closed.
func (e *Engine) begin(ctx context.Context, s *session) (background context.Context) {
	e.current = s
	background, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if e.o.Address == "" {
		return background
	}
	e.heartbeat.log, e.heartbeat.dead = e.o.Log, fmt.Errorf("containerd at %q does not respond", e.o.Address)
	e.heartbeat.ping = func(ctx context.Context) error {
		_, err := s.Version(ctx)
		return err
	}
	e.work.Go(func() { e.heartbeat.run(background) })
	return background
}

// Close ends the engine's work, once the files of what was deleted are removed. Containers run
// on. When this process serves containerd, one of its clients takes over.
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
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, e.o.Namespace), cleanupTimeout)
	defer cancel()
	errs := []error{e.images.Release(ctx, e.current.Client)}
	if e.current.server != nil && e.deleted.Load() {
		errs = append(errs, e.current.server.Collect(ctx))
	}
	errs = append(errs, e.current.Close())
	e.current = nil
	return errors.Join(errs...)
}

func (o *Options) complete() error {
	if os.Geteuid() != 0 {
		return failure.Unusablef("starting containers needs root")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Namespace = cmp.Or(o.Namespace, "runonce")
	o.Address = strings.TrimPrefix(o.Address, "unix://")
	if o.Address != "" {
		abs, err := filepath.Abs(o.Address)
		if err != nil {
			return failure.Unusablef("finding %q: %w", o.Address, err)
		}
		o.Address = abs
	}
	if !filepath.IsAbs(o.Root) || !filepath.IsAbs(o.State) || o.Root == o.State {
		return failure.Unusablef("the root and the state directory must be absolute and differ")
	}
	return o.findRuntimes()
}

func (o Options) recordDir() string { return filepath.Join(o.Root, "containers") }

func (o Options) recordPath(id string) string { return filepath.Join(o.recordDir(), id+".json") }

func (e *Engine) recordPath(id string) string { return e.o.recordPath(id) }
