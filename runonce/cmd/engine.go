package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/record"
)

var (
	_ runonce.Annotator = (*runtime.Pods)(nil)
	_ runonce.Digester  = (*runtime.Pods)(nil)
	_ runonce.Puller    = (*runtime.Pods)(nil)
)

// engineOptions reads the flags of engineFlags and networkFlags, and some of run, for a command that
// starts nothing.
func (p *program) engineOptions(c *cli.Context) (backend.Options, error) {
	o := backend.Options{
		LogDir: c.String("log-dir"), ClaimsDir: c.String("claims-dir"),
		CgroupDriver: c.String("cgroup-driver"), PodPidsLimit: c.Int64("pod-pids-limit"),
	}
	o.Root, o.State, o.Namespace, o.Log, o.Progress = c.String("root"), c.String("state"), c.String("namespace"), p.log, p.display.OnTransfer()
	o.RuncPath, o.StartsNothing = c.String("oci-runtime"), true
	p.registryOptions(c, &o.Options)
	o.Address = cmp.Or(c.String("address"), p.io.Getenv("CONTAINERD_ADDRESS"))
	o.ClaimsDir = cmp.Or(o.ClaimsDir, filepath.Join(o.Root, "claims"))
	var err error
	for _, d := range []struct {
		flag string
		dir  *string
	}{{"root", &o.Root}, {"state", &o.State}, {"log-dir", &o.LogDir}, {"claims-dir", &o.ClaimsDir}} {
		if err := checkDir(d.flag, *d.dir); err != nil {
			return o, err
		}
		if *d.dir, err = filepath.Abs(*d.dir); err != nil {
			return o, fmt.Errorf("resolving directory %q: %w", *d.dir, err)
		}
	}
	if o.Root == o.State {
		return o, usagef("--root and --state must be different directories")
	}
	o.PodsRoot = o.Root
	if o.Journal, err = p.containerJournal(c); err != nil {
		return o, err
	}
	if o.Handlers, err = handlers(c); err != nil {
		return o, err
	}
	return o, networkOptions(c, &o)
}

// checkDir refuses directories that OCI runtimes and containerd cannot handle.
func checkDir(flag, dir string) error {
	switch {
	case dir == "":
		return usagef("--%s %q: must be a directory", flag, dir)
	case !utf8.ValidString(dir):
		return usagef("--%s %q: must be valid UTF-8", flag, dir)
	case (flag == "root" || flag == "state") && strings.Contains(dir, ","):
		return usagef("--%s %q: must not contain a comma, which separates the options of a mount", flag, dir)
	}
	return nil
}

// openEngine opens the container engine.
func (p *program) openEngine(c *cli.Context, o backend.Options) (backend.Engine, error) {
	defer p.display.Wait("waiting for the container engine")()
	e, err := p.io.Open(c.Context, o)
	switch {
	case errors.Is(err, backend.ErrNotRoot):
		return nil, unusable(needsRoot(c))
	case err != nil:
		return nil, unusable(fmt.Errorf("container engine: %w", err))
	}
	return e, nil
}

// needsRoot says what a user who is not root can do.
func needsRoot(c *cli.Context) error {
	name := strings.TrimPrefix(c.Command.HelpName, "runonce ")
	if name == "plan" {
		return errors.New(`"plan" needs root to see this machine and its pods: use sudo, or describe a node, as in --capacity cpu=4,memory=8Gi`)
	}
	return fmt.Errorf("%q needs root: use sudo", name)
}

func (p *program) closeEngine(e backend.Engine) {
	defer p.display.Wait("closing the container engine")()
	if err := e.Close(); err != nil {
		p.log.Warn("closing the engine", "error", err)
	}
}

// session is the open engine of one command.
type session struct {
	p      *program
	engine backend.Engine
	pods   *runtime.Pods
	node   *v1.Node
	// records has the pods, and run owns those of this command.
	records *record.Store
	run     *record.Run
	cancel  context.CancelFunc // ends the work of pods
	// supplied are the references of the images of --images-dir.
	supplied []string
	// readOnly says that the root is read-only, so that the session works with a copy of the
	// records in it.
	readOnly bool
	unlock   func() // called last, may be nil
}

// openNode opens the engine for a run or a plan, on the node that the flags describe.
func (p *program) openNode(c *cli.Context, set *manifests.Set, o runtime.Options) (*session, error) {
	devices := p.devices(c)
	node, err := p.node(c, set, devices)
	if err != nil {
		return nil, err
	}
	engine, err := p.engineOptions(c)
	if err != nil {
		return nil, err
	}
	engine.StartsNothing, o.Devices = false, devices
	return p.open(c, engine, node, o)
}

// connect opens the engine for a command that starts nothing, also if the root is read-only.
func (p *program) connect(c *cli.Context) (*session, error) {
	o, err := p.engineOptions(c)
	if err != nil {
		return nil, err
	}
	unlock, readOnly, err := backend.CopyRoot(&o)
	if err != nil {
		return nil, unusable(err)
	}
	s, err := p.open(c, o, &v1.Node{}, runtime.Options{Objects: &manifests.Set{}})
	if err != nil {
		unlock()
		return nil, err
	}
	s.readOnly, s.unlock = readOnly, unlock
	return s, nil
}

// open opens the engine and its runtime, and imports the images of --images-dir.
func (p *program) open(c *cli.Context, engine backend.Options, node *v1.Node, o runtime.Options) (*session, error) {
	e, err := p.openEngine(c, engine)
	if err != nil {
		return nil, err
	}
	if p.copies.wanted() {
		o.LogCreated = p.copies.created
	}
	// The runtime keeps working after an interrupt, since pods may have to be removed then.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context))
	o.Records, o.LogDir, o.Log = record.Open(engine.Root, engine.State), engine.LogDir, p.log
	o.Records.Notify = func(message string) { p.log.Warn(message) }
	s := &session{p: p, engine: e, node: node, records: o.Records, run: o.Records.NewRun(), cancel: cancel}
	o.ParallelPulls, o.Pull = c.Int("parallel-pulls"), pullMode(c)
	if s.pods, err = e.Pods(ctx, node, o); err != nil {
		s.close()
		return nil, unusable(fmt.Errorf("container engine: %w", err))
	}
	if err := s.importImages(c); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// importImages imports the images of --images-dir that are not in the store.
func (s *session) importImages(c *cli.Context) error {
	var supplied []string
	for _, dir := range imagesDirs(c, s.records.Root()) {
		begin := time.Now()
		images, err := s.engine.Import(c.Context, dir)
		if err != nil {
			return importError(fmt.Errorf("--images-dir: %w", err))
		}
		supplied = append(supplied, images...)
		s.p.log.Info("imported images", "images", images, "elapsed", time.Since(begin))
	}
	s.supplied = supplied
	s.pods.Supply(supplied)
	return nil
}

// enter waits for the run's turn to plan or to stop pods.
func (p *program) enter(ctx context.Context, run *record.Run) error {
	defer p.display.Wait("waiting for another run that plans or stops pods")()
	if err := run.Enter(ctx); err != nil {
		return unusable(err)
	}
	return nil
}

// list returns the pods of earlier runs.
func (s *session) list(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := s.pods.List(ctx)
	if err != nil {
		return nil, unusable(fmt.Errorf("listing pods: %w", err))
	}
	return pods, nil
}

func (s *session) close() {
	s.warn(s.run.Close())
	s.cancel()
	if s.pods != nil {
		s.pods.Wait()
	}
	s.p.closeEngine(s.engine)
	if s.unlock != nil {
		s.unlock()
	}
}

// warn logs an error of the coordination with other runs.
func (s *session) warn(err error) {
	if err != nil {
		s.p.log.Warn("cannot inform other runs", "error", err)
	}
}
