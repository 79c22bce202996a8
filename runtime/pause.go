package runtime

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/spec"
	"github.com/runonce/runonce/runtime/spec/profile"
)

// pauseName is the name of the container whose process is the first of a pod's shared
// process namespace. No container of a manifest can have it: those are DNS labels.
const pauseName = "POD"

// sharesProcesses says whether the containers of the pod have one process namespace.
func sharesProcesses(pod *v1.Pod) bool {
	return pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace
}

// takePause takes the pause process out of the containers. A pod that shares its processes
// and has none that runs has lost its sandbox: the kernel has ended every process with it.
func (s *snapshot) takePause(pod *v1.Pod) {
	if !sharesProcesses(pod) {
		return
	}
	s.pause = s.containers[pauseName]
	delete(s.containers, pauseName)
	s.sandbox = s.sandbox && s.pause.State == engine.StateRunning
}

// pidNamespace is the path of the process namespace that the pause process holds, empty
// when there is none.
func pidNamespace(pause engine.Container) string {
	if pause.State != engine.StateRunning {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns/pid", pause.PID)
}

// ensurePause starts the pod's pause process unless it runs, and returns the path of its
// process namespace.
func (p *Pods) ensurePause(ctx context.Context, at place) (string, error) {
	pause, err := p.pause(ctx, at.pod)
	if err != nil || pause.State == engine.StateRunning {
		return pidNamespace(pause), err
	}
	cgroup, err := p.o.Cgroups.Ensure(ctx, at.pod)
	if err != nil {
		return "", err
	}
	id := engine.ContainerID(string(at.pod.UID), pauseName, 0)
	in := p.machine(spec.Context{Pod: at.pod, Sandbox: at.sandbox(), Node: p.o.Node})
	in.CgroupsPath = spec.CgroupsPath(cgroup, id)
	in.AppArmor = profile.AppArmorName(at.pod, &v1.Container{}, p.o.Host.AppArmor)
	oci, err := spec.Pause(in)
	if err != nil {
		return "", err
	}
	err = p.o.Engine.Start(ctx, engine.ContainerConfig{
		ID: id, PodUID: string(at.pod.UID), Name: pauseName, Spec: oci, Pause: true,
		RuntimeHandler: at.pod.Annotations[podspec.AnnotationRuntimeHandler],
		Labels:         labels(at.pod, &v1.Container{Name: pauseName}, engine.Image{}),
	})
	if err != nil {
		return "", err
	}
	pause, err = p.pause(ctx, at.pod)
	if err == nil && pause.State != engine.StateRunning {
		err = fmt.Errorf("the pause process has ended with exit code %d", pause.Exit.ExitCode)
	}
	return pidNamespace(pause), err
}

// pause returns the pod's pause process as the engine sees it.
func (p *Pods) pause(ctx context.Context, pod *v1.Pod) (engine.Container, error) {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return engine.Container{}, fmt.Errorf("looking for the pause process: %w", err)
	}
	for _, c := range all {
		if c.Name == pauseName {
			return c, nil
		}
	}
	return engine.Container{}, nil
}

// removePause ends the pod's process namespace. A pod without one is no error.
func (p *Pods) removePause(ctx context.Context, pod *v1.Pod) error {
	if !sharesProcesses(pod) {
		return nil
	}
	return p.o.Engine.Remove(ctx, engine.ContainerID(string(pod.UID), pauseName, 0))
}
