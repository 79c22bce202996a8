package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
)

// runHook follows pkg/kubelet/lifecycle/handlers.go, also in its words: any HTTP status is a
// success, and a tcpSocket hook is not run.
func (p *Pods) runHook(ctx context.Context, pod *v1.Pod, c engine.Container, hook *v1.LifecycleHandler) error {
	// The kubelet's words begin with a capital, as errors do not here.
	const execHook, httpHook = "Exec lifecycle hook", "HTTP lifecycle hook"
	whose := fmt.Sprintf("for Container %q in Pod \"%s_%s(%s)\" failed - error", c.Name, pod.Name, pod.Namespace, pod.UID)
	switch {
	case hook.Exec != nil:
		command := hook.Exec.Command
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		output := strings.TrimSpace(string(res.Output))
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), res.ExitCode, output)
		}
		if err != nil {
			return fmt.Errorf("%s (%v) %s: %w, message: %q", execHook, command, whose, err, output)
		}
		return nil
	case hook.HTTPGet != nil:
		sandbox, err := p.o.Sandboxes.Get(ctx, pod)
		if err == nil {
			err = p.target(podspec.Container(pod, c.Name), c, sandbox).Hook(ctx, hook.HTTPGet)
		}
		if err != nil {
			return fmt.Errorf("%s (%s) %s: %w", httpHook, hook.HTTPGet.Path, whose, err)
		}
		return nil
	case hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(hook.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	return errors.New("the hook has no handler that can be run")
}

// target is the container as probes and hooks reach it: by the pod's address, from inside
// its network namespace.
func (p *Pods) target(def *v1.Container, c engine.Container, sandbox engine.Sandbox) probe.Target {
	t := probe.Target{Container: def, NetNS: sandbox.NetNS, Exec: func(ctx context.Context, command []string) (int32, []byte, error) {
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		return res.ExitCode, res.Output, err
	}}
	if len(sandbox.IPs) > 0 {
		t.IP = sandbox.IPs[0]
	}
	return t
}
