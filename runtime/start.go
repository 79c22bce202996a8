package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
)

const (
	// terminationLogs is how the names of the files begin, in the pod's directory, to which its
	// containers write their termination messages.
	terminationLogs = "termination-log."
	// terminationLogMode lets any user of the container write its termination message.
	terminationLogMode = 0o666
)

// overdueCleanup bounds what is undone after a deadline that has passed.
const overdueCleanup = 10 * time.Second

// startContainer starts one instance of a container. The instance before it is removed only
// when the new one runs, so that its exit is never lost.
func (p *Pods) startContainer(ctx context.Context, w *work, next podstate.Start) error {
	c := next.Container
	var img engine.Image
	err := p.traced(w.pod.UID, "image "+c.Name, func() (err error) {
		img, _, err = p.EnsureImage(ctx, w.pod, c.Image, c.ImagePullPolicy)
		return err
	})
	if err != nil {
		return &failure.Error{Why: failure.Reason(err, failure.ReasonErrImagePull), Err: err}
	}
	if err := p.mountImages(ctx, w.pod, c); err != nil {
		return &failure.Error{Why: failure.Reason(err, failure.ReasonErrImagePull), Err: err}
	}
	cfg, err := p.containerConfig(ctx, w, next, img)
	if err != nil {
		return &failure.Error{Why: failure.Reason(err, failure.ReasonConfigError), Err: err}
	}
	err = p.traced(w.pod.UID, "start "+c.Name, func() error { return p.o.Engine.Start(ctx, cfg) })
	if err != nil {
		return errors.Join(err, p.recordFailedStart(w, next, cfg, err), p.discardLog(ctx, w.pod, cfg))
	}
	started := engine.Container{ID: cfg.ID, Name: c.Name, Attempt: cfg.Attempt, Labels: cfg.Labels, State: engine.StateRunning, StartedAt: time.Now()}
	w.running[c.Name] = started
	p.event(w.pod, eventStarted, "Started container %s", c.Name)
	p.startProbes(ctx, w, c, started) // now, since starting the other containers may take long
	if next.Old != "" {
		err = p.o.Engine.Remove(ctx, next.Old)
	}
	return errors.Join(p.postStart(ctx, w, c, started), err)
}

// postStart runs the container's hook, which has no time limit but ctx, as in the kubelet, and the
// pod's deadline, which a kubelet notices only after the hook. A container whose hook fails is
// killed; its restart policy decides what comes then.
func (p *Pods) postStart(ctx context.Context, w *work, def *v1.Container, c engine.Container) error {
	if def.Lifecycle == nil || def.Lifecycle.PostStart == nil {
		return nil
	}
	err := p.traced(w.pod.UID, "postStart "+def.Name, func() error {
		limited := ctx
		if at, ok := podstate.Deadline(w.pod, w.record); ok {
			var cancel context.CancelFunc
			limited, cancel = context.WithDeadline(ctx, at)
			defer cancel()
		}
		return p.runHook(limited, w.pod, c, def.Lifecycle.PostStart)
	})
	if err == nil {
		return nil
	}
	delete(w.running, def.Name)
	limit := podspec.GracePeriod(w.pod) + cleanupTimeout
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		limit = min(limit, overdueCleanup) // the time of the run is up
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	killed := p.killAll(cleanup, w.pod, []podstate.Kill{{Container: c, Grace: graceWithin(cleanup, podspec.GracePeriod(w.pod))}})
	if message := p.terminationLog(w.pod, c.Name, c.Attempt); killed == nil && readTerminationLog(message) == "" {
		// Else nothing says later why the container was killed.
		text := err.Error()
		killed = os.WriteFile(message, []byte(text[:min(len(text), maxTerminationMessage)]), terminationLogMode)
	}
	err = errors.Join(err, killed)
	return &failure.Error{Why: podstate.ReasonPostStartHook, Err: err}
}

// containerConfig makes all that the engine needs to start the container.
func (p *Pods) containerConfig(ctx context.Context, w *work, next podstate.Start, img engine.Image) (engine.ContainerConfig, error) {
	pod, c := w.pod, next.Container
	in := ocispec.Context{Pod: pod, Image: img, Sandbox: w.sandbox, Objects: p.o.Objects, Node: p.o.Node}
	in.File = func(volume, path string) ([]byte, error) { return p.o.Volumes.ReadFile(pod, volume, path) }
	env, err := ocispec.Environment(in, c)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	mounts, err := p.mounts(ctx, pod, next, env, img)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	cgroup, err := p.o.Cgroups.Ensure(ctx, pod)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	id := engine.ContainerID(string(pod.UID), c.Name, w.record.Started, next.Attempt)
	input, err := p.input(in, c)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	input.Env, input.Mounts = env, mounts
	if w.sandbox.UserNS != "" {
		if err := p.o.Volumes.MapUsers(pod, c.Name, w.sandbox.UserNS, input.Mounts); err != nil {
			return engine.ContainerConfig{}, err
		}
	}
	input.CgroupsPath = ocispec.CgroupsPath(cgroup, id)
	oci, err := ocispec.Build(input)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	if err := p.o.Devices.Inject(oci, w.record.Devices[c.Name]); err != nil {
		return engine.ContainerConfig{}, err
	}
	// Last, since a number is not given back if a later step fails.
	logPath, err := p.createLog(pod, next)
	if err != nil {
		return engine.ContainerConfig{}, err
	}
	all := labels(pod, c, img)
	all[engine.LabelUser] = userLabel(oci.Process.User)
	return engine.ContainerConfig{
		ID: id, PodUID: string(pod.UID), Name: c.Name, Attempt: next.Attempt, Image: img.Ref,
		Spec: oci, LogPath: logPath, Labels: all, Last: next.Last,
		RuntimeHandler: pod.Annotations[podspec.AnnotationRuntimeHandler], Stdin: c.Stdin,
		DefaultSeccomp: ocispec.SeccompProfile(pod, c).Type == v1.SeccompProfileTypeRuntimeDefault,
	}, nil
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

// input makes the input of the container's spec, but for what depends on the pod's state.
func (p *Pods) input(in ocispec.Context, c *v1.Container) (ocispec.Input, error) {
	input := ocispec.Input{Context: in, Host: p.o.Host.Host, Container: c}
	input.AppArmor = ocispec.AppArmorName(in.Pod, c, p.o.Host.AppArmor)
	var err error
	if p.o.Host.SELinux {
		input.SELinux, input.MountLabel = ocispec.SELinuxLabels(in.Pod, c)
	}
	if input.MountLabel != "" {
		if err = p.relabel(in.Pod.UID, input.MountLabel); err != nil {
			return input, err
		}
	}
	if ocispec.Privileged(c) {
		if input.HostDevices, err = hostDevices("/dev"); err != nil {
			return input, err
		}
	}
	if s := ocispec.SeccompProfile(in.Pod, c); s.Type == v1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil {
		input.Seccomp, err = readSeccomp(p.o.Host.SeccompDir, *s.LocalhostProfile)
	}
	return input, err
}

func labels(pod *v1.Pod, c *v1.Container, img engine.Image) map[string]string {
	l := map[string]string{
		engine.LabelPodName: pod.Name, engine.LabelPodNamespace: pod.Namespace, engine.LabelPodUID: string(pod.UID), engine.LabelContainerName: c.Name,
	}
	if sig := podstate.StopSignalName(c, img); sig != "" {
		l[engine.LabelStopSignal] = sig
	}
	return l
}

// mounts returns the mounts of the container: the pod's volumes, those of its image, and our files.
func (p *Pods) mounts(ctx context.Context, pod *v1.Pod, next podstate.Start, env []string, img engine.Image) ([]specs.Mount, error) {
	mounts, err := p.o.Volumes.Mounts(pod, next.Container, env)
	if err != nil {
		return nil, err
	}
	own, err := p.ownMounts(pod, next.Container, next.Attempt)
	if err != nil {
		return nil, err
	}
	return p.addDeclared(ctx, pod, next.Container, img, withDefaults(mounts, own))
}

func bind(target, source, access string) specs.Mount {
	return specs.Mount{Destination: target, Source: source, Type: "bind", Options: []string{"rbind", "rprivate", access}}
}

// ownMounts returns the mounts of the files that the kubelet adds to each container.
func (p *Pods) ownMounts(pod *v1.Pod, c *v1.Container, attempt int) ([]specs.Mount, error) {
	dir := p.o.Records.Dir(pod.UID)
	mounts := append(make([]specs.Mount, 0, 4),
		bind("/etc/hostname", filepath.Join(dir, hostnameFile), rootAccess(c)),
		bind("/etc/hosts", filepath.Join(dir, hostsFile), "rw"),
		bind("/etc/resolv.conf", filepath.Join(dir, resolvFile), rootAccess(c)))
	if c.TerminationMessagePath == "" {
		return mounts, nil
	}
	// That of the instance before is read until this one runs; nobody reads older ones.
	_ = os.Remove(p.terminationLog(pod, c.Name, attempt-2))
	path := p.terminationLog(pod, c.Name, attempt)
	// With exactly this mode, whatever the umask is.
	err := os.WriteFile(path, nil, terminationLogMode)
	if err == nil {
		err = os.Chmod(path, terminationLogMode)
	}
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	return append(mounts, bind(c.TerminationMessagePath, path, "rw")), nil
}

// rootAccess is "ro" for a container with a read-only root, and "rw" for others. The files that
// CRI runtimes add are mounted in the same way, while those that the kubelet adds, hosts and
// the termination log, are writable (internal/cri/server/container_create_linux.go,
// pkg/kubelet/kubelet_pods.go).
func rootAccess(c *v1.Container) string {
	if s := c.SecurityContext; s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
		return "ro"
	}
	return "rw"
}

// terminationLog is the path of the container's termination message on the host.
func (p *Pods) terminationLog(pod *v1.Pod, name string, attempt int) string {
	return filepath.Join(p.o.Records.Dir(pod.UID), terminationLogs+name+"."+strconv.Itoa(attempt))
}

// withDefaults adds to the pod's mounts those of ours with other targets. Ours come first: a
// volume on /etc hides them, as it does in the kubelet.
func withDefaults(mounts, own []specs.Mount) []specs.Mount {
	own = slices.DeleteFunc(own, func(o specs.Mount) bool {
		return slices.ContainsFunc(mounts, func(m specs.Mount) bool { return filepath.Clean(m.Destination) == o.Destination })
	})
	return append(own, mounts...)
}
