package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

var errRunning = errors.New("it is running")

// Start creates the container and returns once its process runs.
func (e *Engine) Start(ctx context.Context, c engine.ContainerConfig) error {
	tries, created, begin := 0, false, time.Now()
	err := e.do(ctx, func(ctx context.Context, s *session) error {
		tries++
		if created {
			if started, err := e.startedSince(ctx, s, c.ID, begin); started || err != nil {
				return err
			}
		}
		img, err := e.prepare(ctx, s, c)
		if err == nil {
			created = true
			err = e.start(ctx, s, c, img)
		}
		if tries > 1 && errors.Is(err, errRunning) {
			// An earlier try started it, and the server ended before it could say so.
			return nil
		}
		return err
	})
	if err == nil {
		return nil
	}
	if created && !errors.Is(err, errRunning) {
		e.o.Log.Debug("a container did not start", "container", c.ID, "error", err)
		e.undoStart(ctx, c, begin)
	}
	return fmt.Errorf("starting container %q: %w", c.Name, err)
}

// undoStart removes what a failed start has left, unless the process has run all the same. It is
// called after the last try, with the session of that time: a lost session may have connected
// to the next server, on which the container may run.
func (e *Engine) undoStart(ctx context.Context, c engine.ContainerConfig, begin time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := e.do(ctx, func(ctx context.Context, s *session) error {
		if started, err := e.startedSince(ctx, s, c.ID, begin); started || err != nil {
			return err
		}
		if e.thirdParty(c.ID) {
			// It is still waiting to be started: its end is no exit.
			if err := removeFile(e.recordPath(c.ID)); err != nil {
				return err
			}
		}
		err := e.removeUnstarted(ctx, s, c)
		// The call that was cut off may have started it until then.
		if started, lerr := e.startedSince(ctx, s, c.ID, begin); started || lerr != nil {
			return errors.Join(err, lerr)
		}
		return e.remove(ctx, s, c.ID, c.PodUID)
	})
	if err != nil {
		e.o.Log.Warn("could not completely remove a container that did not start", "container", c.ID, "error", err)
	}
}

// removeUnstarted removes the task of a container that was not started. Our own shim refuses that when it was
// started meanwhile, where a kill would make an exit of it that nobody has asked for.
func (e *Engine) removeUnstarted(ctx context.Context, s *session, c engine.ContainerConfig) error {
	if e.thirdParty(c.ID) {
		return e.removeTask(ctx, s, c.ID, c.PodUID)
	}
	e.podLocks.Lock(c.PodUID)
	defer func() { _ = e.podLocks.Unlock(c.PodUID) }()
	if err := e.deleteTask(ctx, s, c.ID); !errdefs.IsFailedPrecondition(images.NativeError(err)) {
		return err
	}
	return nil
}

// prepare returns the image of a container that does not run.
func (e *Engine) prepare(ctx context.Context, s *session, c engine.ContainerConfig) (*images.Image, error) {
	if known, _, _ := e.containers.get(c.ID); known.State == engine.StateRunning {
		return nil, errRunning
	}
	if err := confine(ctx, c); err != nil {
		return nil, err
	}
	return e.imageOf(ctx, s, c)
}

// removeLeftover removes the container unless it runs, which is errRunning.
func (e *Engine) removeLeftover(ctx context.Context, s *session, c engine.ContainerConfig) error {
	runs, err := e.startedElsewhere(ctx, s, c.ID)
	if err != nil {
		return fmt.Errorf("looking for a leftover: %w", err)
	}
	if runs {
		return errRunning
	}
	return e.remove(ctx, s, c.ID, c.PodUID)
}

func (e *Engine) start(ctx context.Context, s *session, c engine.ContainerConfig, img *images.Image) error {
	// Before the snapshot, which the record protects from the garbage collector.
	if err := e.createRecord(ctx, s, c, img); err != nil {
		return err
	}
	mounts, err := e.rootfs(ctx, s, c, img)
	if err != nil {
		return err
	}
	pid, err := e.run(ctx, s, c, mounts)
	if err != nil {
		return err
	}
	now := time.Now()
	if e.thirdParty(c.ID) {
		if _, err := e.updateRecord(e.recordPath(c.ID), protocol.Record{ContainerID: c.ID, StartedAt: now}); err != nil {
			return err
		}
	}
	e.started(c.ID, now, pid)
	return nil
}

// createRecord creates the container's record, replacing that of a leftover, and removes what is
// left in the directory of its bundle.
func (e *Engine) createRecord(ctx context.Context, s *session, c engine.ContainerConfig, img *images.Image) error {
	rec, err := newRecord(s, c, img)
	if err != nil {
		return &failure.Error{Why: failure.ReasonCreateError, Final: true, Err: err}
	}
	made, err := s.ContainerService().Create(ctx, rec)
	if errdefs.IsAlreadyExists(images.NativeError(err)) {
		if err := e.removeLeftover(ctx, s, c); err != nil {
			return err
		}
		made, err = s.ContainerService().Create(ctx, rec)
	}
	if err != nil {
		err = images.NativeError(err)
		return &failure.Error{Why: failure.ReasonCreateError, Final: errdefs.IsInvalidArgument(err), Err: fmt.Errorf("creating its record: %w", err)}
	}
	if one, ok := containerOf(made); ok {
		e.containers.put(one)
	}
	// A process that was killed while it removed a container of this ID may have left its exit.
	return errors.Join(removeFile(e.recordPath(c.ID)), s.removeBundle(ctx, c.ID))
}

func newRecord(s *session, c engine.ContainerConfig, img *images.Image) (containers.Container, error) {
	oci := ownSpec(c.Spec)
	snapshotter, snapshot := s.Snapshotter, c.ID
	if c.Pause {
		pauseSpec(oci, s.shim)
		snapshotter, snapshot = "", ""
	}
	oci.Annotations = with(oci.Annotations, protocol.GroupAnnotation, c.PodUID) // they share a shim
	oci.Root.Path = "rootfs"
	if c.DefaultSeccomp {
		oci.Linux.Seccomp = seccomp.DefaultProfile(oci)
	}
	if s.shims != nil {
		limitFiles(oci.Process)
	}
	config, err := s.runtimeOf(c.RuntimeHandler, c.Runtime)
	if err != nil {
		return containers.Container{}, err
	}
	runtime, err := config.info(ocispec.InSlice(oci.Linux.CgroupsPath))
	if err != nil {
		return containers.Container{}, err
	}
	packed, err := typeurl.MarshalAny(oci)
	if err != nil {
		return containers.Container{}, fmt.Errorf("encoding its spec: %w", err)
	}
	ext, err := extension{
		PodUID: c.PodUID, Name: c.Name, Attempt: c.Attempt, ImageID: img.ID, Digest: img.Digest, LogPath: c.LogPath, Last: c.Last,
	}.pack()
	if err != nil {
		return containers.Container{}, err
	}
	labels, sandbox := c.Labels, ""
	switch {
	case config.thirdParty:
		value := "true"
		if c.StdinOnce {
			value = thirdPartyOnce
		}
		labels = with(labels, labelThirdParty, value)
	case s.shims != nil:
		sandbox = server.Sandbox(c.ID) // lets containerd connect to a shim that we started
	}
	return containers.Container{
		ID:          c.ID,
		Labels:      labels,
		Image:       c.Image,
		Runtime:     runtime,
		Spec:        packed,
		SnapshotKey: snapshot,
		Snapshotter: snapshotter,
		Extensions:  map[string]typeurl.Any{extensionKey: ext},
		SandboxID:   sandbox,
	}, nil
}

// with returns a copy of the map with another entry.
func with(all map[string]string, key, value string) map[string]string {
	more := map[string]string{}
	maps.Copy(more, all)
	more[key] = value
	return more
}

// labelThirdParty marks the containers with a third-party shim.
const (
	labelThirdParty = "runonce/foreign-shim"
	thirdPartyOnce  = "stdin-once" // those of them with StdinOnce
)

// thirdParty reports whether the container's shim is not ours, so that a logger process writes
// its logs and the engine writes its exit record.
func (e *Engine) thirdParty(id string) bool {
	c, _, _ := e.containers.get(id)
	return c.Labels[labelThirdParty] != ""
}

// run creates and starts the process, and returns its ID on the host.
func (e *Engine) run(ctx context.Context, s *session, c engine.ContainerConfig, mounts []mount.Mount) (int, error) {
	thirdParty := e.thirdParty(c.ID)
	io, err := e.streams(ctx, s, c, thirdParty)
	if err != nil {
		return 0, &failure.Error{Why: failure.ReasonRunError, Err: err}
	}
	req := &tasksapi.CreateTaskRequest{
		ContainerID: c.ID, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Terminal: terminal(c),
	}
	for _, m := range mounts {
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	err = e.createTask(ctx, s, c.PodUID, req, thirdParty)
	io.release()
	if err == nil && thirdParty {
		// From here on it may have run, even if nobody sees that. Our own shim records its starts.
		if _, err := e.updateRecord(e.recordPath(c.ID), protocol.Record{ContainerID: c.ID}); err != nil {
			return 0, err
		}
	}
	pid := 0
	if err == nil {
		if c.Created != nil {
			c.Created()
		}
		pid, err = e.startTask(ctx, s, c.ID)
	}
	if err == nil {
		return pid, nil
	}
	if err = images.NativeError(err); errdefs.IsUnavailable(err) || ctx.Err() != nil {
		return 0, err
	}
	message := failure.RuntimeMessage(err, commandOf(c.Spec))
	return 0, &failure.Error{
		Why: failure.ReasonRunError, Final: failure.IsPermanentMessage(message), Ended: failure.IsRefusal(err), Err: failure.WithMessage(message, err),
	}
}

// startTask starts the process of a created container and returns its ID on the host, 0 if it has ended.
func (e *Engine) startTask(ctx context.Context, s *session, id string) (int, error) {
	var resp *tasksapi.StartResponse
	err := e.bounded(ctx, s, id, "start", func(ctx context.Context) (err error) {
		resp, err = s.Tasks().Start(ctx, &tasksapi.StartRequest{ContainerID: id})
		return err
	})
	if errdefs.IsNotFound(images.NativeError(err)) {
		// The task of a process that ends at once may be deleted before containerd has asked for its state.
		if ran, rerr := e.startedSince(ctx, s, id, time.Time{}); ran || rerr != nil {
			return 0, rerr
		}
	}
	return int(resp.GetPid()), err
}

// commandOf returns the first word of the container's command.
func commandOf(spec *specs.Spec) string {
	if spec.Process == nil || len(spec.Process.Args) == 0 {
		return ""
	}
	return spec.Process.Args[0]
}

// createTask creates the process, in the pod's shim.
func (e *Engine) createTask(ctx context.Context, s *session, podUID string, req *tasksapi.CreateTaskRequest, thirdParty bool) error {
	// A pod's first container starts the shim, and the end of its last one ends it.
	e.podLocks.Lock(podUID)
	defer func() { _ = e.podLocks.Unlock(podUID) }()
	create := func() error {
		return e.bounded(ctx, s, req.ContainerID, "create", func(ctx context.Context) error {
			resp, err := s.Tasks().Create(ctx, req)
			e.containers.created(req.ContainerID, int(resp.GetPid()))
			return err
		})
	}
	if s.shims == nil || thirdParty {
		err := untilShimGone(ctx, create) // it may end with the pod's last container when this one comes
		if err != nil {
			if bundles := bundlesDir(err, e.o.Namespace, req.ContainerID); bundles != "" {
				if rerr := e.removeStaleBundle(ctx, s, bundles, req.ContainerID); rerr != nil {
					return errors.Join(err, rerr)
				}
				err = create()
			}
		}
		return err
	}
	for {
		address, fresh, err := s.shims.Ensure(ctx, podUID, req.ContainerID)
		if err != nil {
			return err
		}
		req.TaskApiAddress, req.TaskApiVersion = address, protocol.APIVersion
		if err = create(); err == nil {
			return nil
		}
		native := images.NativeError(err)
		if e.lost(s, native) {
			// Start is repeated with the next session. The next server may know the task already.
			return native
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		s.shims.Release(cleanup, podUID)
		cancel()
		// A shim that was running may have been about to end.
		if fresh || !shimEnded(native) {
			return err
		}
	}
}

// shimEnded reports whether the error may mean that the shim has ended before or while containerd used it. What comes
// from containerd is text: "ttrpc: closed", "failed to create TTRPC connection: ...".
func shimEnded(err error) bool {
	return errdefs.IsUnavailable(err) || strings.Contains(strings.ToLower(err.Error()), "ttrpc")
}

// ownSpec returns a copy of the spec of which the engine may change what it has to.
func ownSpec(s *specs.Spec) *specs.Spec {
	own := *s
	own.Process, own.Root, own.Linux = copyOf(s.Process), copyOf(s.Root), copyOf(s.Linux)
	return &own
}

func copyOf[T any](p *T) *T {
	c := new(T)
	if p != nil {
		*c = *p
	}
	return c
}
