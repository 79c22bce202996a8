// Package server runs containerd inside this process: the plugins that a run needs, a client
// that calls them directly, and the sockets for other processes and for the shims.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/containerd/containerd/v2/pkg/timeout"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// Options say where the server keeps its files. Root outlives a reboot, State need not.
type Options struct {
	Root      string
	State     string
	Namespace string // of the containers
	Log       *slog.Logger
	// Stores says that only what is stored is needed, and nobody else can use the server.
	Stores bool
}

// Server is a containerd inside this process.
type Server struct {
	// Client calls the server without a socket.
	Client *client.Client

	root      string
	set       *plugin.Set
	tasks     *lateTasks
	layers    *layers
	listeners *listeners
}

// Start starts the server. Only one may use a root at a time: see TryLock.
func Start(ctx context.Context, o Options) (*Server, error) {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{o.Root, 0o700}, {o.State, 0o711}, {socketDir(o.State), 0o711}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return nil, fmt.Errorf("making containerd's directory: %w", err)
		}
	}
	if err := errors.Join(protect(o.Root), checkDatabases(o.Root)); err != nil {
		return nil, err
	}
	if err := sweepMounts(filepath.Join(o.Root, "mounts"), o.Log); err != nil {
		return nil, err
	}
	// Otherwise the metadata store waits for its lock for ever.
	timeout.Set("io.containerd.timeout.bolt.open", time.Minute)

	s := &Server{root: o.Root, set: plugin.NewPluginSet(), layers: newLayers(o)}
	err := s.layers.recover()
	if err == nil {
		err = s.load(context.WithoutCancel(ctx), o)
	}
	if err == nil {
		s.Client, err = newClient(s.set)
	}
	if err == nil && !o.Stores {
		err = s.recover(ctx, o)
	}
	if err == nil && !o.Stores {
		s.listeners, err = serve(ctx, s.set, Socket(o.State))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// TasksLoaded returns a channel that is closed when the server has connected to the shims, which it does when it is asked for
// a task for the first time. Until then it does not know if one of them dies.
func (s *Server) TasksLoaded() <-chan struct{} { return s.tasks.loaded }

// protect keeps other users from the metadata store, which has the environment variables of
// containers, even if they may enter the root. containerd's own modes let them read it.
func protect(root string) error {
	dir := metadataDir(root)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("protecting containerd's metadata: %w", err)
	}
	return nil
}

// load initialises the plugins in order of their dependencies.
func (s *Server) load(ctx context.Context, o Options) error {
	socket := Socket(o.State)
	for _, r := range registry.Graph(nil) {
		ic := plugin.NewContext(ctx, s.set, map[string]string{
			plugins.PropertyRootDir:      filepath.Join(o.Root, r.URI()),
			plugins.PropertyStateDir:     filepath.Join(o.State, r.URI()),
			plugins.PropertyGRPCAddress:  socket,
			plugins.PropertyTTRPCAddress: socket + ttrpcSuffix,
		})
		// Nothing waits for readiness: every plugin is ready when Init returns.
		ic.RegisterReadiness = func() func() { return func() {} }
		ic.Config = r.Config
		switch r.URI() {
		case plugins.ShimPlugin.String() + ".manager":
			r.InitFn = func(ic *plugin.InitContext) (any, error) { return newShimManager(ic, s.set, o.State) }
		case plugins.RuntimePluginV2.String() + ".task":
			s.tasks = newLateTasks(ic, s.set)
			r.InitFn = func(*plugin.InitContext) (any, error) { return s.tasks, nil }
		case overlayPlugin:
			r.InitFn = unlessUnusable(r.InitFn, o)
		}
		if r.Type == plugins.SnapshotPlugin {
			r.InitFn = s.layers.wrap(r.InitFn)
		}
		p := r.Init(ic)
		if err := s.set.Add(p); err != nil {
			return fmt.Errorf("starting containerd: %w", err)
		}
		if err := p.Err(); err != nil && !plugin.IsSkipPlugin(err) {
			return fmt.Errorf("starting containerd's %s: %w", r.URI(), err)
		}
	}
	return nil
}

// Collect runs the garbage collector, which removes the files of deleted snapshots and
// images.
func (s *Server) Collect(ctx context.Context) error {
	collector, err := find[interface {
		ScheduleAndWait(context.Context) (gc.Stats, error)
	}](s.set, plugins.GCPlugin, "scheduler")
	if err != nil {
		return err
	}
	if _, err := collector.ScheduleAndWait(ctx); err != nil {
		return fmt.Errorf("collecting garbage: %w", err)
	}
	return nil
}

// Close stops serving, which makes the clients look for another server, and closes the
// stores. Containers run on.
func (s *Server) Close() error {
	var errs []error
	if s.listeners != nil {
		errs = append(errs, s.listeners.close(closeTimeout))
	}
	errs = append(errs, s.layers.close())
	all := s.set.GetAll()
	for i := len(all) - 1; i >= 0; i-- {
		instance, err := all[i].Instance()
		if err != nil {
			continue
		}
		if c, ok := instance.(io.Closer); ok {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("closing containerd's %s: %w", all[i].Registration.URI(), err))
			}
		}
	}
	if s.listeners != nil {
		errs = append(errs, unmark(s.root))
	}
	return errors.Join(errs...)
}

// RedirectLog sends the messages of containerd and its client to l at debug level, or nowhere: on
// stderr they would hide the run's report.
func RedirectLog(ctx context.Context, l *slog.Logger) {
	// Not debug: the shims would inherit it.
	level := "panic"
	log.L.Logger.SetOutput(io.Discard)
	if l.Enabled(ctx, slog.LevelDebug) {
		level = "info"
		log.L.Logger.SetOutput(lineLogger{l})
	}
	// The level is one of containerd's own, so it cannot be wrong.
	_ = log.SetLevel(level)
}

// lineLogger turns each written line into a debug record.
type lineLogger struct{ log *slog.Logger }

func (w lineLogger) Write(line []byte) (int, error) {
	w.log.Debug("containerd", "line", string(line))
	return len(line), nil
}
