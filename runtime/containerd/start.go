package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/containerd/embed"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/imagestore"
	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/containerd/record"
	"github.com/runonce/runonce/runtime/containerd/spawn"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/shim/handoff"
)

// groupAnnotation makes containers share a shim (cmd/containerd-shim-runc-v2/manager).
const groupAnnotation = "io.containerd.runc.v2.group"

var errRunning = errors.New("it is running")

// Start creates the container and returns once its process runs.
func (e *Engine) Start(ctx context.Context, c engine.ContainerConfig) error {
	tries := 0
	err := e.do(ctx, func(ctx context.Context, s *link.Session) error {
		tries++
		err := e.start(ctx, s, c)
		if tries > 1 && errors.Is(err, errRunning) {
			// The first try did it, and the server went before it could say so.
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("starting container %q: %w", c.Name, err)
	}
	return nil
}

func (e *Engine) start(ctx context.Context, s *link.Session, c engine.ContainerConfig) (err error) {
	if known, _, ok := e.cache.Get(c.ID); ok {
		if known.State == engine.StateRunning || e.adopt(ctx, s, c.ID) {
			return errRunning
		}
		if err := e.purge(ctx, s, c.ID, c.PodUID); err != nil {
			return err
		}
	}
	img, err := e.imageOf(ctx, s, c)
	if err != nil {
		return err
	}
	if err := confine(c); err != nil {
		return err
	}
	defer func() {
		if err == nil || errors.Is(err, errRunning) {
			return
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if perr := e.purge(cleanup, s, c.ID, c.PodUID); perr != nil {
			e.o.Log.Warn("a container that did not start is not wholly removed", "container", c.ID, "error", perr)
		}
	}()
	// Before the snapshot, which the record protects from the garbage collector.
	if err := e.record(ctx, s, c, img); err != nil {
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
	if e.foreign(c.ID) {
		// Our own shim does it itself.
		if _, err := e.note(e.recordPath(c.ID), handoff.Record{ContainerID: c.ID, StartedAt: now}); err != nil {
			return err
		}
	}
	e.cache.Started(c.ID, now, pid)
	return nil
}

// record makes the container's record, in place of a leftover's, and room for its bundle.
func (e *Engine) record(ctx context.Context, s *link.Session, c engine.ContainerConfig, img *imagestore.Image) error {
	rec, err := newRecord(s, c, img)
	if err != nil {
		return &failure.Error{Why: failure.ReasonCreateError, Final: true, Err: err}
	}
	made, err := s.ContainerService().Create(ctx, rec)
	if errdefs.IsAlreadyExists(errs.Native(err)) {
		if e.adopt(ctx, s, c.ID) {
			return errRunning
		}
		if err := e.purge(ctx, s, c.ID, c.PodUID); err != nil {
			return err
		}
		made, err = s.ContainerService().Create(ctx, rec)
	}
	if err != nil {
		err = errs.Native(err)
		return &failure.Error{Why: failure.ReasonCreateError, Final: errdefs.IsInvalidArgument(err), Err: fmt.Errorf("creating its record: %w", err)}
	}
	if one, ok := record.Container(made); ok {
		e.cache.Put(one)
	}
	return e.removeBundle(ctx, s, c.ID)
}

func newRecord(s *link.Session, c engine.ContainerConfig, img *imagestore.Image) (containers.Container, error) {
	oci := *c.Spec
	snapshotter, snapshot := s.Snapshotter, c.ID
	if c.Pause {
		oci = pauseSpec(oci, s.Shim)
		snapshotter, snapshot = "", ""
	}
	oci.Annotations = maps.Clone(oci.Annotations)
	if oci.Annotations == nil {
		oci.Annotations = map[string]string{}
	}
	oci.Annotations[groupAnnotation] = c.PodUID
	root := specs.Root{}
	if oci.Root != nil {
		root = *oci.Root
	}
	root.Path = "rootfs"
	oci.Root = &root
	if c.DefaultSeccomp && oci.Linux != nil {
		linux := *oci.Linux
		linux.Seccomp = seccomp.DefaultProfile(&oci)
		oci.Linux = &linux
	}
	how, err := s.Runtime(c.RuntimeHandler, oci.Linux != nil && ocispec.InSlice(oci.Linux.CgroupsPath))
	if err != nil {
		return containers.Container{}, err
	}
	packed, err := typeurl.MarshalAny(&oci)
	if err != nil {
		return containers.Container{}, fmt.Errorf("encoding its spec: %w", err)
	}
	ext, err := record.Meta{
		PodUID: c.PodUID, Name: c.Name, Attempt: c.Attempt, ImageID: img.ID, LogPath: c.LogPath, Last: c.Last,
	}.Pack()
	if err != nil {
		return containers.Container{}, err
	}
	return containers.Container{
		ID:          c.ID,
		Labels:      withShim(c.Labels, how),
		Image:       c.Image,
		Runtime:     how.RuntimeInfo,
		Spec:        packed,
		SnapshotKey: snapshot,
		Snapshotter: snapshotter,
		Extensions:  map[string]typeurl.Any{record.Extension: ext},
		SandboxID:   sandboxID(s, how),
	}, nil
}

// sandboxID lets containerd connect to a shim that we started.
func sandboxID(s *link.Session, how link.Runtime) string {
	if s.Spawn == nil || how.Foreign {
		return ""
	}
	return embed.Sandbox
}

// labelForeign marks the containers whose shim is not ours.
const labelForeign = "runonce/foreign-shim"

func withShim(labels map[string]string, how link.Runtime) map[string]string {
	if !how.Foreign {
		return labels
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelForeign] = "true"
	return labels
}

// foreign reports whether the container's shim is not ours, so that a process of ours
// takes its logs and the engine writes its record.
func (e *Engine) foreign(id string) bool {
	c, _, _ := e.cache.Get(id)
	return c.Labels[labelForeign] != ""
}

// rootfs prepares the container's own layer.
func (e *Engine) rootfs(ctx context.Context, s *link.Session, c engine.ContainerConfig, img *imagestore.Image) ([]mount.Mount, error) {
	if c.Pause {
		return pauseRootfs(c.Spec), nil
	}
	opts, err := mapped(ctx, s, c.Spec)
	if err != nil {
		return nil, err
	}
	mounts, err := s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
	switch {
	case errdefs.IsAlreadyExists(err):
		if err := s.Snapshots().Remove(ctx, c.ID); err != nil {
			return nil, fmt.Errorf("removing an old root file system: %w", err)
		}
		mounts, err = s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
	case errdefs.IsNotFound(err):
		// The image was removed and came back since we looked.
		e.images.Forget(c.Image)
		if img, err = e.images.Get(ctx, s, c.Image); err == nil {
			mounts, err = s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
		}
	case err != nil && ctx.Err() == nil:
		// A directory that a crash left stands in the way once: the failure removes it.
		mounts, err = s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
	}
	if err != nil {
		return nil, &failure.Error{Why: failure.ReasonCreateError, Err: fmt.Errorf("preparing its root file system: %w", err)}
	}
	return labelled(mounts, c.Spec), nil
}

// run creates and starts the process, and returns its ID on the host.
func (e *Engine) run(ctx context.Context, s *link.Session, c engine.ContainerConfig, mounts []mount.Mount) (int, error) {
	foreign := e.foreign(c.ID)
	io, err := e.streams(ctx, s, c, foreign)
	if err != nil {
		return 0, &failure.Error{Why: failure.ReasonRunError, Err: err}
	}
	req := &tasksapi.CreateTaskRequest{
		ContainerID: c.ID, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Terminal: terminal(c),
	}
	for _, m := range mounts {
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	err = e.createTask(ctx, s, c.PodUID, req, foreign)
	io.release()
	var started *tasksapi.StartResponse
	if err == nil {
		started, err = s.Tasks().Start(ctx, &tasksapi.StartRequest{ContainerID: c.ID})
	}
	if err == nil {
		return int(started.Pid), nil
	}
	if err = errs.Native(err); errdefs.IsUnavailable(err) || ctx.Err() != nil {
		return 0, err
	}
	message := errs.RuncMessage(err)
	return 0, &failure.Error{Why: failure.ReasonRunError, Final: errs.IsPermanentMessage(message), Err: failure.WithMessage(message, err)}
}

// createTask creates the process, in the pod's shim.
func (e *Engine) createTask(ctx context.Context, s *link.Session, podUID string, req *tasksapi.CreateTaskRequest, foreign bool) error {
	// The first of a pod starts its shim, and the last one's end ends it.
	defer e.pods.Lock(podUID)()
	if s.Spawn == nil || foreign {
		_, err := s.Tasks().Create(ctx, req)
		return err
	}
	for {
		address, fresh, err := s.Spawn.Ensure(ctx, podUID, req.ContainerID)
		if err != nil {
			return err
		}
		req.TaskApiAddress, req.TaskApiVersion = address, spawn.Version
		if _, err = s.Tasks().Create(ctx, req); err == nil {
			return nil
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		s.Spawn.Release(cleanup, podUID)
		cancel()
		// One that was there may have been about to end.
		if fresh || !errdefs.IsUnavailable(errs.Native(err)) && !strings.Contains(err.Error(), "ttrpc") {
			return err
		}
	}
}

// Remove deletes the container with all that belongs to it but its logs.
func (e *Engine) Remove(ctx context.Context, id string) error {
	known, _, _ := e.cache.Get(id)
	err := e.do(ctx, func(ctx context.Context, s *link.Session) error { return e.purge(ctx, s, id, known.PodUID) })
	if err != nil {
		return fmt.Errorf("removing container %q: %w", id, err)
	}
	return nil
}

// purge removes whatever there is of a container: process, shim, bundle, record, snapshot.
func (e *Engine) purge(ctx context.Context, s *link.Session, id, podUID string) error {
	if err := e.purgeTask(ctx, s, id, podUID); err != nil {
		return err
	}
	if err := errs.IgnoreNotFound(s.ContainerService().Delete(ctx, id)); err != nil {
		return fmt.Errorf("deleting its record: %w", err)
	}
	e.deleted.Store(true)
	if err := errs.IgnoreNotFound(s.Snapshots().Remove(ctx, id)); err != nil {
		return fmt.Errorf("deleting its root file system: %w", err)
	}
	for _, path := range []string{e.recordPath(id), handoff.Output{RecordPath: e.recordPath(id)}.LoggingPath()} {
		if err := removeFile(path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(e.stdioDir(id)); err != nil {
		return fmt.Errorf("removing its pipes: %w", err)
	}
	e.cache.Remove(id)
	return nil
}

// purgeTask kills the process and deletes the task.
func (e *Engine) purgeTask(ctx context.Context, s *link.Session, id, podUID string) error {
	// Its exit would have the task deleted under our hands.
	defer e.pods.Lock(podUID)()
	resp, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err := errs.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("looking for its task: %w", err)
	}
	none := err != nil
	// Also when it never ran: the shim would leave the kill to "runc delete", which polls.
	// And also when it is gone: a daemon keeps the shim of a task that it has deleted but
	// whose shim did not end in time, and ends it when asked again.
	if !none && resp.Process.Status != tasktypes.Status_STOPPED {
		if err := e.kill(ctx, s, id); err != nil {
			return err
		}
	}
	_, err = s.Tasks().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	if err := errs.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting its task: %w", err)
	}
	if none {
		if err := e.expel(ctx, s, id, podUID); err != nil {
			return err
		}
	}
	return e.removeBundle(ctx, s, id)
}
