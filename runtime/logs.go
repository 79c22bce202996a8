package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/podstate"
)

// annotationDefaultContainer names the container that "kubectl logs" chooses.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

func logsOf(pod *v1.Pod) logs.Pod {
	return logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// createLog makes the log of the next instance of a container. That of an instance which was
// created by a process that was killed, and never ran, is used again.
func (p *Pods) createLog(pod *v1.Pod, next podstate.Start) (path string, err error) {
	if path = next.LogPath; !logs.Empty(path) {
		path, err = p.logs.Create(logsOf(pod), next.Container.Name, LogMark(pod))
	}
	if err == nil && p.o.LogCreated != nil {
		p.o.LogCreated(pod, next.Container.Name, path)
	}
	return path, err
}

// LogMark returns the pod's containers, as far as they are of interest to readers of logs.
func LogMark(pod *v1.Pod) logs.Mark {
	about := logs.Mark{Default: pod.Annotations[annotationDefaultContainer]}
	for _, c := range pod.Spec.Containers {
		about.Containers = append(about.Containers, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		about.Init = append(about.Init, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		about.Ephemeral = append(about.Ephemeral, c.Name)
	}
	return about
}

// discardLog removes the log of an instance that was not started, unless the engine still has that.
func (p *Pods) discardLog(ctx context.Context, uid types.UID, path string) error {
	all, err := p.o.Engine.Containers(context.WithoutCancel(ctx), string(uid))
	if err != nil || slices.ContainsFunc(all, func(c engine.Container) bool { return c.LogPath == path }) {
		return err
	}
	return p.logs.Discard(path)
}

// closeLogs records that the pod was removed. Its containers that never ran leave no log.
func (p *Pods) closeLogs(pod *v1.Pod, all []engine.Container) error {
	errs := []error{p.logs.Removed(logsOf(pod))}
	for _, c := range all {
		if c.State == engine.StateCreated && c.LogPath != "" {
			errs = append(errs, p.logs.Discard(c.LogPath))
		}
	}
	return errors.Join(errs...)
}

// LogPath returns the log of an instance of a container, by the ID in the pod's status. It is
// empty unless this process has seen the instance.
func (p *Pods) LogPath(pod *v1.Pod, containerID string) (path string) {
	p.remember(pod.UID, func(m *memory) { path = m.logPaths[strings.TrimPrefix(containerID, podstate.ContainerIDPrefix)] })
	return path
}

// logWriter returns the instance of one of the pod's containers whose log that is, none if the engine does not have it.
func (p *Pods) logWriter(ctx context.Context, pod *v1.Pod, logPath string) (engine.Container, error) {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	for _, c := range all {
		// The directory of logs may have several names.
		if c.Name == filepath.Base(filepath.Dir(logPath)) && filepath.Base(c.LogPath) == filepath.Base(logPath) {
			return c, err
		}
	}
	return engine.Container{}, err
}

// RemoveLogs removes the logs of those of the pods that do not exist any more; of all such pods
// of this root, or of one namespace unless that is "", if it is asked to.
func (p *Pods) RemoveLogs(pods []*v1.Pod, all bool, namespace string) error {
	return p.removeOldLogs(func(found []logs.Found) []logs.Found {
		return slices.DeleteFunc(found, func(f logs.Found) bool {
			chosen := all && (namespace == "" || f.Namespace == namespace)
			return !chosen && !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return string(pod.UID) == f.UID })
		})
	})
}

// ExpireLogs removes the logs of removed pods that are too old or too many.
func (p *Pods) ExpireLogs() error {
	return p.removeOldLogs(func(all []logs.Found) []logs.Found { return logs.Expired(all, time.Now()) })
}

// removeOldLogs removes some of the logs of pods that this root has run and has no record of.
func (p *Pods) removeOldLogs(choose func([]logs.Found) []logs.Found) error {
	found, err := p.logs.List()
	if err != nil {
		return err
	}
	known, err := p.o.Records.List()
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, r := range known {
		exists[string(r.Pod.UID)] = !r.Removed
	}
	found = slices.DeleteFunc(found, func(f logs.Found) bool { return !f.Owned || exists[f.UID] })
	var errs []error
	for _, f := range choose(found) {
		errs = append(errs, p.removeLogs(f.Pod))
	}
	return errors.Join(errs...)
}

// removeLogs removes the logs of a pod that does not exist and that nobody is about to start.
func (p *Pods) removeLogs(pod logs.Pod) error {
	uid := types.UID(pod.UID)
	lock, ok, err := p.o.Records.TryLock(uid)
	if err != nil || !ok {
		return err
	}
	if r, err := p.o.Records.Load(uid); err == nil && !r.Removed {
		lock.Release()
		return nil
	}
	defer lock.Discard()
	return p.logs.Remove(pod)
}

// logUsage is what the logs of a container use on disk: those of its newest instance and of the
// one before.
func logUsage(c engine.Container) (int64, error) {
	used, err := logs.DiskUsage(c.LogPath)
	if err != nil || c.Last == nil {
		return used, err
	}
	before, err := logs.DiskUsage(c.Last.LogPath)
	return used + before, err
}
