package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

func preStop(pod *v1.Pod, name string) *v1.LifecycleHandler {
	if c := definition(pod, name); c.Lifecycle != nil {
		return c.Lifecycle.PreStop
	}
	return nil
}

// definition returns the pod's container of that name, an empty one when it has none.
func definition(pod *v1.Pod, name string) *v1.Container {
	for _, c := range podspec.Containers(pod) {
		if c.Name == name {
			return c
		}
	}
	return &v1.Container{Name: name}
}

// hookCall is one call of a lifecycle hook.
type hookCall struct {
	pod   *v1.Pod
	c     engine.Container
	hook  *v1.LifecycleHandler
	limit time.Duration // 0 for none
}

// runHook follows pkg/kubelet/lifecycle/handlers.go, also in its words: any HTTP status is a
// success, and a tcpSocket hook is not run.
func (p *Pods) runHook(ctx context.Context, h hookCall) error {
	if h.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.limit)
		defer cancel()
	}
	// The kubelet's words, which begin as no error does here.
	const execHook, httpHook = "Exec lifecycle hook", "HTTP lifecycle hook"
	whose := fmt.Sprintf("for Container %q in Pod \"%s_%s(%s)\" failed - error", h.c.Name, h.pod.Name, h.pod.Namespace, h.pod.UID)
	switch {
	case h.hook.Exec != nil:
		command := h.hook.Exec.Command
		res, err := p.o.Engine.Exec(ctx, h.c.ID, command)
		output := strings.TrimSpace(string(res.Output))
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), res.ExitCode, output)
		}
		if err != nil {
			return fmt.Errorf("%s (%v) %s: %w, message: %q", execHook, command, whose, err, output)
		}
		return nil
	case h.hook.HTTPGet != nil:
		box, err := p.o.Sandboxes.Get(ctx, h.pod)
		if err == nil {
			err = target(definition(h.pod, h.c.Name), box).Hook(ctx, h.hook.HTTPGet)
		}
		if err != nil {
			return fmt.Errorf("%s (%s) %s: %w", httpHook, h.hook.HTTPGet.Path, whose, err)
		}
		return nil
	case h.hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.hook.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	return errors.New("the hook has no handler that can be run")
}

// target is the container as probes and hooks reach it: by the pod's address, from inside
// its network namespace.
func target(def *v1.Container, box engine.Sandbox) probe.Target {
	t := probe.Target{Container: def, NetNS: box.NetNS}
	if len(box.IPs) > 0 {
		t.IP = box.IPs[0]
	}
	return t
}
