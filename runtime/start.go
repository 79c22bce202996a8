package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// startAll starts the containers in spec order, and records why those wait that do not run
// then. One that fails does not keep the others from starting, as in kuberuntime's SyncPod.
func (p *Pods) startAll(ctx context.Context, w *work, todo podstate.Actions) error {
	var errs []*failure.Error
	failures := map[string]record.Failure{}
	maps.Copy(failures, w.record.Failures)
	delete(failures, record.PodFailure)
	start := func(name string, attempt int, f func() error) {
		if ctx.Err() != nil {
			return
		}
		delete(failures, name)
		err := f()
		if err == nil || errors.Is(err, errCutOff) {
			return
		}
		reason := failure.Reason(err, failure.ReasonCreateError)
		failures[name] = record.Failure{Reason: reason, Message: err.Error(), Attempt: attempt}
		errs = append(errs, containerError(name, reason, err))
		if ctx.Err() == nil {
			p.failureEvent(w.pod, name, reason, err)
		}
	}
	for _, c := range todo.PostStart {
		start(c.Name, c.Attempt, func() error { return p.completeStart(ctx, w, podspec.Container(w.pod, c.Name), c) })
	}
	if len(todo.Start) > 0 {
		p.pullUnmounted(ctx, w.pod)
	}
	for _, next := range todo.Start {
		start(next.Container.Name, next.Attempt, func() error {
			c, err := p.startContainer(ctx, w, next)
			if err != nil {
				return err
			}
			if next.Old != "" {
				err = p.o.Engine.Remove(ctx, next.Old)
			}
			return errors.Join(p.completeStart(ctx, w, next.Container, c), err)
		})
	}
	for _, next := range todo.Wait {
		name := next.Container.Name
		p.events.add(w.pod, name, eventBackOff, "Back-off restarting failed container %s in pod %s_%s(%s)", name, w.pod.Name, w.pod.Namespace, w.pod.UID)
		failures[name] = record.Failure{Reason: podstate.ReasonCrashLoopBackOff, Message: next.Reason, Attempt: next.Attempt}
		e := containerError(name, podstate.ReasonCrashLoopBackOff, errors.New(next.Reason))
		e.Wait = next.Delay
		errs = append(errs, e)
	}
	for _, next := range todo.Refused {
		failures[next.Container.Name] = record.Failure{Reason: podstate.ReasonCrashLoopBackOff, Message: next.Reason, Attempt: next.Attempt}
	}
	p.recordFailures(ctx, w, failures)
	if len(errs) == 0 {
		return ctx.Err()
	}
	return &SyncError{errs}
}

// startContainer starts the next instance of a container and returns it. The instance before it is
// removed only when the new one runs, so that its exit is never lost.
func (p *Pods) startContainer(ctx context.Context, w *work, next podstate.Start) (engine.Container, error) {
	c := next.Container
	p.o.Log.DebugContext(ctx, "starting container", "pod", podspec.FullName(w.pod), "container", c.Name, "attempt", next.Attempt, "reason", next.Reason)
	img, err := p.containerImages(ctx, w.pod, c)
	if err != nil {
		return engine.Container{}, &failure.Error{Why: failure.Reason(err, failure.ReasonErrImagePull), Err: err}
	}
	cfg, err := p.containerConfig(ctx, w, next, img)
	if err != nil {
		return engine.Container{}, &failure.Error{Why: failure.Reason(err, failure.ReasonConfigError), Err: err}
	}
	if err := p.recordPostStart(w.pod, c, cfg.ID); err != nil {
		return engine.Container{}, err
	}
	started := func() {}
	if p.o.Created != nil {
		cfg.Created = func() { started = p.o.Created(w.pod, c.Name, cfg.ID) }
	}
	if err := p.o.traced(w.pod.UID, "start "+c.Name, func() error { return p.o.Engine.Start(ctx, cfg) }); err != nil {
		return engine.Container{}, p.startFailed(ctx, w.pod, next, cfg, err)
	}
	started()
	p.events.add(w.pod, c.Name, eventCreated, "Created container %s", c.Name)
	p.events.add(w.pod, c.Name, eventStarted, "Started container %s", c.Name)
	return engine.Container{ID: cfg.ID, Name: c.Name, Attempt: cfg.Attempt, Labels: cfg.Labels, State: engine.StateRunning, StartedAt: time.Now()}, nil
}

// startFailed returns the error of a start, explained, and keeps the log of the instance only if that
// is recorded as one that has ended.
func (p *Pods) startFailed(ctx context.Context, pod *v1.Pod, next podstate.Start, cfg engine.ContainerConfig, err error) error {
	err = failedStart{pod, next.Container, cfg.Spec, p.o.Volumes.InMemory}.explain(err)
	recorded, rerr := p.recordFailedStart(pod, next, cfg, err)
	if recorded {
		return err
	}
	return errors.Join(err, rerr, p.discardLog(ctx, pod.UID, cfg.LogPath))
}

// containerConfig makes all that the engine needs to start the container: what follows from the pod, and
// what that needs of this machine.
func (p *Pods) containerConfig(ctx context.Context, w *work, next podstate.Start, img engine.Image) (engine.ContainerConfig, error) {
	pod, c := w.pod, next.Container
	services, err := p.environment(pod)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	sandbox, err := w.sandboxOf(c)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	in, err := ocispec.Plan(ocispec.Context{
		Pod: pod, Image: img, Sandbox: sandbox, Objects: podspec.ObjectsOf(pod, p.o.Objects), Node: p.o.Node, Services: services,
		File: func(volume, path string) ([]byte, error) { return p.o.Volumes.ReadFile(pod, volume, path) },
	}, p.o.Host.Host, c)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	cfg := engine.ContainerConfig{
		ID: engine.ContainerID(string(pod.UID), c.Name, w.record.Started, next.Attempt), PodUID: string(pod.UID),
		Name: c.Name, Attempt: next.Attempt, Last: next.Last, Image: img.Ref, Labels: labels(pod, c, img), RunFile: p.o.Records.RunFile(w.record),
		RuntimeHandler: pod.Annotations[podspec.AnnotationRuntimeHandler], Runtime: w.record.Runtime, Stdin: c.Stdin, StdinOnce: c.StdinOnce,
		DefaultSeccomp: p.o.Host.SeccompProfile(pod, c).Type == v1.SeccompProfileTypeRuntimeDefault,
	}
	if err := p.provide(ctx, cfg.ID, next, &in); err != nil {
		return engine.ContainerConfig{}, err
	}
	if cfg.Spec, err = ocispec.Build(in); err != nil {
		return engine.ContainerConfig{}, err
	}
	if p.o.Healthchecks && c.ReadinessProbe == nil {
		podstate.SetHealthcheck(cfg.Labels, image.Healthcheck(img.Healthcheck))
	}
	cfg.Labels[engine.LabelUser] = userLabel(cfg.Spec.Process.User)
	if err := p.o.Devices.Inject(cfg.Spec, w.record.Devices[c.Name]); err != nil {
		return engine.ContainerConfig{}, err
	}
	// Last, since a number is not given back if a later step fails.
	cfg.LogPath, err = p.createLog(pod, next)
	return cfg, err
}

// provide completes the input of the container's spec by what has to be made on this machine, or read
// from it.
func (p *Pods) provide(ctx context.Context, id string, next podstate.Start, in *ocispec.Input) (err error) {
	if in.Mounts, err = p.mounts(ctx, next.Attempt, *in); err != nil {
		return err
	}
	cgroup, err := p.o.Cgroups.Ensure(ctx, in.Pod)
	if err != nil {
		return err
	}
	in.CgroupsPath = ocispec.CgroupsPath(cgroup, id)
	if ocispec.Privileged(in.Container) {
		if in.HostDevices, err = host.DeviceNodes("/dev"); err != nil {
			return err
		}
	}
	if s := in.SeccompProfile(in.Pod, in.Container); s.Type == v1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil {
		in.Seccomp, err = host.ReadSeccomp(p.o.Host.SeccompDir, *s.LocalhostProfile)
	}
	return err
}

// errCutOff is the error of a start that the end of ctx has cut off during the postStart hook. It
// says nothing about the container.
var errCutOff = errors.New("cut off during the postStart hook")

// completeStart runs the postStart hook of a container that runs, if it has one, and then begins to
// probe it: now, since starting the other containers may take long. A container whose hook fails
// is killed; its restart policy decides what comes then. One whose hook is cut off by the end of
// ctx is left alone: a later Sync runs the hook again.
func (p *Pods) completeStart(ctx context.Context, w *work, def *v1.Container, c engine.Container) error {
	if hook := podspec.PostStart(def); hook != nil {
		switch err := p.postStart(ctx, w, c, hook); {
		case ctx.Err() != nil:
			return errCutOff
		case err != nil:
			return p.killAfterHook(ctx, w.pod, c, err)
		}
		if err := p.recordPostStart(w.pod, def, ""); err != nil {
			return err
		}
		p.watch.notify(string(w.pod.UID)) // others may wait for it
	}
	w.running[def.Name] = c
	p.startProbes(ctx, w, def, c)
	return nil
}

// recordPostStart records, before it starts, that the postStart hook of the instance with the given
// ID has yet to pass, or with no ID that it has.
func (p *Pods) recordPostStart(pod *v1.Pod, def *v1.Container, id string) error {
	if podspec.PostStart(def) == nil {
		return nil
	}
	return p.update(pod, func(r *record.Pod) {
		if r.PostStarts == nil {
			r.PostStarts = map[string]string{}
		}
		if r.PostStarts[def.Name] = id; id == "" {
			delete(r.PostStarts, def.Name)
		}
	})
}

// postStart runs the hook, which has no time limit but ctx, as in the kubelet, and the pod's
// deadline, which a kubelet notices only after the hook.
func (p *Pods) postStart(ctx context.Context, w *work, c engine.Container, hook *v1.LifecycleHandler) error {
	return p.o.traced(w.pod.UID, "postStart "+c.Name, func() error {
		if at, ok := podstate.Deadline(w.pod, w.record); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, at)
			defer cancel()
		}
		return p.runHook(ctx, w.pod, c, hook)
	})
}

// killAfterHook kills a container whose postStart hook has failed.
func (p *Pods) killAfterHook(ctx context.Context, pod *v1.Pod, c engine.Container, cause error) error {
	grace := podspec.GracePeriod(pod)
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+cleanupTimeout)
	defer cancel()
	killed := p.killAll(cleanup, pod, []podstate.Kill{{Container: c, Grace: grace, Reason: eventFailedPostStartHook}})
	if message := p.terminationLog(pod, c.Name, c.Attempt); killed == nil && readTerminationLog(message) == "" {
		// Else nothing says later why the container was killed.
		text := cause.Error()
		killed = os.WriteFile(message, []byte(text[:min(len(text), maxTerminationMessage)]), terminationLogMode)
	}
	return &failure.Error{Why: podstate.ReasonPostStartHook, Err: errors.Join(cause, killed)}
}

// userLabel is the user of the container's first process, for its status.
func userLabel(u specs.User) string {
	own := v1.LinuxContainerUser{UID: int64(u.UID), GID: int64(u.GID)}
	for _, gid := range u.AdditionalGids {
		own.SupplementalGroups = append(own.SupplementalGroups, int64(gid))
	}
	text, _ := json.Marshal(own) // numbers alone
	return string(text)
}

func labels(pod *v1.Pod, c *v1.Container, img engine.Image) map[string]string {
	l := map[string]string{
		engine.LabelPodName: pod.Name, engine.LabelPodNamespace: pod.Namespace, engine.LabelPodUID: string(pod.UID), engine.LabelContainerName: c.Name,
	}
	if sig := podstate.StopSignalName(c, img); sig != "" {
		l[engine.LabelStopSignal] = sig
	}
	if img.Platform != "" {
		l[engine.LabelPlatform] = img.Platform
	}
	return l
}
