package runtime

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/storage"
)

const (
	// measureEvery bounds how often the storage of a pod is measured: whoever watches a
	// pod looks every ten seconds, like the kubelet's eviction manager, but events may wake
	// him far more often.
	measureEvery = time.Second
	// measurePause is how many times longer than a measurement the pause after it is.
	measurePause = 5
	// evictionGrace is what the kubelet leaves a pod that has to go at once
	// (eviction.immediateEvictionGracePeriodSeconds).
	evictionGrace = int64(1)
)

// enforceStorage ends a pod that uses more local storage than it may, and says whether it
// has been ended for that. Only what this process has synced is held to its limits: to look
// is not to watch.
func (p *Pods) enforceStorage(ctx context.Context, pod *v1.Pod, containers map[string]engine.Container) (bool, error) {
	message, err := p.overused(ctx, pod, containers)
	if err != nil || message == "" {
		return false, err
	}
	if p.o.Claim != nil {
		release, ok, err := p.o.Claim(pod)
		if err != nil || !ok {
			return false, err // whoever works on it, or the next look, will see
		}
		defer release()
	}
	now, err := p.store.load(pod.UID)
	if err != nil || now.Status.Phase == v1.PodFailed {
		// Another process was faster: it has ended the pod, or removed it.
		return err == nil, nil
	}
	hurried, grace := pod.DeepCopy(), evictionGrace
	hurried.Spec.TerminationGracePeriodSeconds = &grace
	return true, p.Fail(ctx, hurried, storage.Reason, message)
}

// overused measures a pod's storage, if that is due, and says which limit it exceeds.
func (p *Pods) overused(ctx context.Context, pod *v1.Pod, containers map[string]engine.Container) (string, error) {
	st := p.of(pod.UID)
	if !storage.Limited(pod) || !running(containers) || !st.mu.TryLock() {
		return "", nil
	}
	defer st.mu.Unlock()
	begin := time.Now()
	if !st.synced || begin.Before(st.measure) || st.recorded(p.store, pod).Phase == v1.PodFailed {
		return "", nil
	}
	used, err := p.storage(ctx, pod, containers)
	// Where it takes long, it must not become what the machine does.
	st.measure = time.Now().Add(max(measureEvery, measurePause*time.Since(begin)))
	if err != nil {
		return "", fmt.Errorf("measuring the storage of pod %q: %w", pod.Name, err)
	}
	return storage.Exceeded(pod, used), nil
}

func running(containers map[string]engine.Container) bool {
	for _, c := range containers {
		if c.State == engine.StateRunning {
			return true
		}
	}
	return false
}

// storage measures what the pod uses.
func (p *Pods) storage(ctx context.Context, pod *v1.Pod, containers map[string]engine.Container) (storage.Usage, error) {
	used := storage.Usage{Containers: map[string]int64{}}
	var err error
	if used.Volumes, err = p.o.Volumes.Usage(ctx, pod); err != nil {
		return used, err
	}
	for name, c := range containers {
		path := logs.Path(p.o.LogDir, logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, name, c.Attempt)
		written, err := storage.Bytes(ctx, filepath.Dir(path))
		if err != nil {
			return used, err
		}
		layer, err := p.o.Layers.Usage(ctx, c.ID)
		if err != nil {
			return used, err
		}
		used.Containers[name] = written + layer
	}
	return used, nil
}
