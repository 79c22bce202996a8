package cmd

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/record"
)

var _ runonce.Annotator = (*runtime.Pods)(nil)

// EngineOptions say which engine is meant, where things live and how the engine's pods are
// set up. Directories are absolute; what is empty has its package's default.
type EngineOptions struct {
	containerd.Options
	LogDir    string
	ClaimsDir string // for the data of claims
	// Network says how pods are connected, ClusterDNS and its ClusterDomain what they resolve.
	Network    network.Options
	ClusterDNS []string
	// CgroupDriver makes the cgroups of new pods: cgroupfs or systemd.
	CgroupDriver string
	// PodPidsLimit bounds the processes of a pod, -1 for no bound.
	PodPidsLimit int64
}

// Engine is an open container engine.
type Engine interface {
	// Pods returns the runtime on the engine for the pods of a node. The options are
	// complete but for what the engine and the machine give. It works until ctx is done.
	Pods(ctx context.Context, node *v1.Node, o runtime.Options) (*runtime.Pods, error)
	// Unable says what the machine lacks, by the UID of the pod that needs it.
	Unable(ctx context.Context, pods []*v1.Pod) map[types.UID]string
	// Cleanup removes what pods that are gone have left behind. Pods comes first.
	Cleanup(ctx context.Context) error
	// Import puts the images of archives and OCI layouts into the store and returns
	// their names. path is such an archive, or a directory of them, or a layout.
	Import(ctx context.Context, path string) ([]string, error)
	// Images returns the images that are there, by name.
	Images(ctx context.Context) ([]Image, error)
	// Close releases the engine; containers run on.
	Close() error
}

// engineOptions reads the flags of engineFlags and networkFlags, and those of run.
func (p *program) engineOptions(c *cli.Context) (EngineOptions, error) {
	o := EngineOptions{
		LogDir: c.String("log-dir"), ClaimsDir: c.String("claims-dir"),
		CgroupDriver: c.String("cgroup-driver"), PodPidsLimit: c.Int64("pod-pids-limit"),
	}
	o.Address, o.Root, o.State, o.Namespace, o.Log = c.String("address"), c.String("root"), c.String("state"), c.String("namespace"), p.log
	if o.Address == "" {
		o.Address = p.io.Getenv("CONTAINERD_ADDRESS")
	}
	if o.ClaimsDir == "" {
		o.ClaimsDir = filepath.Join(o.Root, "claims")
	}
	var err error
	for _, dir := range []*string{&o.Root, &o.State, &o.LogDir, &o.ClaimsDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return o, fmt.Errorf("finding %q: %w", *dir, err)
		}
	}
	if o.Handlers, err = handlers(c); err != nil {
		return o, err
	}
	return o, o.networkOptions(c)
}

// openEngine opens the container engine.
func (p *program) openEngine(c *cli.Context) (Engine, EngineOptions, error) {
	o, err := p.engineOptions(c)
	if err != nil {
		return nil, o, err
	}
	e, err := p.io.Open(c.Context, o)
	if err != nil {
		return nil, o, unusable(fmt.Errorf("container engine: %w", err))
	}
	return e, o, nil
}

func (p *program) closeEngine(e Engine) {
	if err := e.Close(); err != nil {
		p.log.Warn("closing the engine", "error", err)
	}
}

// session is an engine at work for one command.
type session struct {
	p      *program
	engine Engine
	pods   *runtime.Pods
	node   *v1.Node
	trace  runonce.Trace
	run    *record.Run
	cancel context.CancelFunc // ends the work of pods
}

// setUp opens the engine for a run: it imports images and detects the node.
func (p *program) setUp(c *cli.Context, set *manifests.Set) (*session, error) {
	devices := p.devices(c)
	node, err := p.node(c, set, devices)
	if err != nil {
		return nil, err
	}
	return p.open(c, node, runtime.Options{Objects: set, Devices: devices})
}

// connect opens the engine for a command that starts nothing.
func (p *program) connect(c *cli.Context) (*session, error) {
	return p.open(c, &v1.Node{}, runtime.Options{Objects: &manifests.Set{}})
}

// open opens the engine and the runtime on it, with the images of --images-dir.
func (p *program) open(c *cli.Context, node *v1.Node, o runtime.Options) (*session, error) {
	e, place, err := p.openEngine(c)
	if err != nil {
		return nil, err
	}
	// What the runtime does in the background has to outlast an interruption, since pods
	// may have to be removed then.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context))
	o.Records, o.LogDir, o.Log = record.Open(place.Root, place.State), place.LogDir, p.log
	s := &session{p: p, engine: e, node: node, run: o.Records.NewRun(), cancel: cancel}
	o.Trace = s.trace.Record
	if dir := c.String("images-dir"); dir != "" {
		begin := time.Now()
		if o.LocalImages, err = e.Import(c.Context, dir); err != nil {
			s.close()
			return nil, badInput(fmt.Errorf("--images-dir: %w", err))
		}
		p.log.Info("images are there", "images", o.LocalImages, "elapsed", time.Since(begin))
	}
	if s.pods, err = e.Pods(ctx, node, o); err != nil {
		s.close()
		return nil, unusable(fmt.Errorf("container engine: %w", err))
	}
	return s, nil
}

func (s *session) close() {
	s.note(s.run.Close())
	s.cancel()
	s.p.closeEngine(s.engine)
}

// note tells of an error that keeps nothing from going on.
func (s *session) note(err error) {
	if err != nil {
		s.p.log.Warn("telling other runs", "error", err)
	}
}
