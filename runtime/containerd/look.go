package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/errgroup"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// openToLook returns an engine for somebody who looks at the containers: what they do is known from their records and
// from the kernel, without their shims, of which each would take three calls. It has let go of containerd by then. ok is
// false if that is not known of one of them: its shim, or the OCI runtime, has to be asked.
func openToLook(ctx context.Context, o Options, chosen Choice) (e *Engine, ok bool, err error) {
	s, err := connect(ctx, o)
	if err != nil {
		return nil, false, err
	}
	e = newEngine(o)
	e.chosen = chosen
	ok, err = e.look(namespaces.WithNamespace(ctx, o.Namespace), s)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, false, failure.Unusable{Cause: err}
	}
	return e, ok, nil
}

// look fills e.containers, and reports whether it knows what has become of all.
func (e *Engine) look(ctx context.Context, s *session) (known bool, err error) {
	shim, err := os.Stat(s.shim)
	if err != nil {
		return false, err
	}
	all, err := s.ContainerService().List(ctx)
	if err != nil {
		return false, fmt.Errorf("listing containers: %w", images.NativeError(err))
	}
	var unclear atomic.Bool
	var looking errgroup.Group
	looking.SetLimit(goruntime.GOMAXPROCS(0))
	for _, c := range all {
		one, ok := containerOf(c)
		if !ok {
			continue
		}
		e.containers.add(one)
		looking.Go(func() error {
			if !unclear.Load() && !e.lookAt(one.ID, shim) {
				unclear.Store(true)
			}
			return nil
		})
	}
	_ = looking.Wait() // none of them fails
	return !unclear.Load(), nil
}

// lookFirst is look for an engine that works on, and reports whether the shims may be asked later: no container has left
// anything of its task that has to be removed.
func (e *Engine) lookFirst(ctx context.Context, s *session) (known bool, err error) {
	if s.server == nil {
		return false, nil
	}
	bundles, err := os.ReadDir(e.o.bundles())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, nil // which is reported by whoever needs it
	}
	if known, err = e.look(ctx, s); !known || err != nil {
		return false, err
	}
	return !slices.ContainsFunc(bundles, func(b fs.DirEntry) bool {
		c, _, _ := e.containers.get(b.Name())
		return c.State != engine.StateRunning
	}), nil
}

// lookAt notes the state of a container, and reports whether it knows that. If it runs, it does so in that shim.
func (e *Engine) lookAt(id string, shim os.FileInfo) bool {
	r, err := protocol.Read(e.recordPath(id))
	r.ContainerID = id
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true // it was never started
	case err != nil:
		return false
	case r.Ended():
		e.containers.exited(r)
		return true
	case r.StartedAt.IsZero(), e.thirdParty(id):
		return false
	}
	bundle, err := e.o.bundle(id)
	if err != nil {
		return false
	}
	pid, ok := runsIn(shim, bundle, id)
	if ok {
		e.containers.started(id, r.StartedAt, pid)
	}
	return ok
}

// runsIn returns the ID of the process of a container, if it and its shim, whose program is given, run.
func runsIn(shim os.FileInfo, bundle, id string) (pid int, ok bool) {
	text, err := os.ReadFile(filepath.Join(bundle, "init.pid"))
	if err != nil {
		return 0, false
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, false
	}
	parent, ok := process.Parent(pid)
	if !ok {
		return 0, false
	}
	// Another process may have the number by now.
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !bytes.Contains(groups, []byte(id)) {
		return 0, false
	}
	program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", parent))
	return pid, err == nil && os.SameFile(program, shim)
}

// execToLook is Exec with an engine that only looks.
func (e *Engine) execToLook(ctx context.Context, id string, args []string) (res engine.ExecResult, err error) {
	var out limitedBuffer
	res.ExitCode, _, err = e.o.execTied(ctx, id, engine.Command{Args: args}, engine.Streams{Stdout: &out}, true)
	res.Output = out
	return res, err
}
