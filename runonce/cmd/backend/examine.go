package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/network"
)

// Examination is what was found of the parts of a machine that have to be tried. Each error is about the part above it.
type Examination struct {
	Cgroups    string // v2, hybrid or v1
	CgroupsErr error
	Engine     containerd.Versions
	EngineErr  error // of the daemon
	RuntimeErr error
	Seccomp    bool // the OCI runtime has it
	Network    string
	NetworkErr error
	OverlayErr error
}

// Examine tries what a run needs of this machine, without leaving anything. The embedded containerd is not started. The
// only error is ErrNotRoot.
func Examine(ctx context.Context, o Options) (Examination, error) {
	if os.Geteuid() != 0 {
		return Examination{}, ErrNotRoot
	}
	x := Examination{Cgroups: cgroupMode(cgroup.Root)}
	_, _, x.CgroupsErr = o.detect(func() (cgroup.Tree, error) { return cgroup.Detect(cgroup.Root) })
	x.Engine, x.EngineErr = Versions(ctx, o)
	x.tryIn(ctx, o)
	if program := x.Engine.RuntimePath; program != "" {
		x.Seccomp = host.FeaturesOf(ctx, func(ctx context.Context) ([]byte, error) { return containerd.Features(ctx, program) }).Seccomp
	}
	net := o.Network
	net.StateDir = filepath.Join(o.State, "network")
	x.Network, x.NetworkErr = network.New(net).CheckMachine(ctx)
	return x, nil
}

// tryIn tries what needs files on the file system of the root.
func (x *Examination) tryIn(ctx context.Context, o Options) {
	dir, err := os.MkdirTemp(Existing(o.Root), ".runonce-doctor-")
	if err != nil {
		x.RuntimeErr = fmt.Errorf("trying the OCI runtime: %w", err)
		return
	}
	if x.CgroupsErr == nil {
		// Another root is another parent of cgroups, which goes with its last pod.
		o.PodsRoot = dir
		o.Trial = o.trial()
		var chosen containerd.Choice
		if chosen, x.RuntimeErr = containerd.TryRuntime(ctx, o.Options, filepath.Join(dir, "trial")); chosen.Path != x.Engine.RuntimePath {
			x.Engine.Runtime = containerd.ProgramVersion(ctx, chosen.Path)
		}
		x.Engine.RuntimePath, x.Engine.RuntimeReason = chosen.Path, chosen.Reason
	}
	if o.Address == "" {
		x.OverlayErr = server.TryOverlay(dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		x.RuntimeErr = errors.Join(x.RuntimeErr, fmt.Errorf("removing what was tried: %w", err))
	}
}

// Existing returns the directory, or the one above it that exists.
func Existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
