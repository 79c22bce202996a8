package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waitingFile tells the processes after this one why containers of the pod could not be
// started.
const waitingFile = "waiting.json"

// ground stands for all containers of a pod that lacks what they stand on. No container has
// this name.
const ground = ""

// startFailure is why a container could not be started.
type startFailure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Attempt int    `json:"attempt"` // which instance of the container it would have been
}

// failures returns what the last Sync of any process left, by container. Without the file, or
// with one that cannot be read, nothing is known to have failed.
func (s store) failures(uid types.UID) map[string]startFailure {
	failed := map[string]startFailure{}
	if s.recall(uid, waitingFile, &failed) != nil {
		return map[string]startFailure{}
	}
	return failed
}

// keepFailures replaces what failures returns.
func (s store) keepFailures(uid types.UID, failed map[string]startFailure) error {
	if len(failed) == 0 {
		if err := os.Remove(filepath.Join(s.path(uid), waitingFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what is known of failed starts: %w", err)
		}
		return nil
	}
	return s.keep(uid, waitingFile, failed)
}

// noteFailures records what could not be started, and forgets what now has been: done names
// the containers that were tried. What was cut off says nothing about the pod, and a pod
// without a record leaves none of this either.
func (p *Pods) noteFailures(ctx context.Context, pod *v1.Pod, done []string, failed map[string]startFailure) {
	if ctx.Err() != nil {
		return
	}
	before := p.store.failures(pod.UID)
	now := maps.Clone(before)
	for _, name := range done {
		delete(now, name)
	}
	maps.Copy(now, failed)
	if maps.Equal(before, now) {
		return
	}
	if err := p.store.keepFailures(pod.UID, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.o.Log.WarnContext(ctx, "other processes will not know why the pod waits", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

// noteGround records that what the containers stand on could not be made.
func (p *Pods) noteGround(ctx context.Context, pod *v1.Pod, err error) {
	var faults *SyncError
	if errors.As(err, &faults) {
		lead := faults.lead()
		p.noteFailures(ctx, pod, nil, map[string]startFailure{ground: {Reason: lead.Why, Message: lead.Err.Error()}})
	}
}

// groundless gives the status of a pod that has never had containers the reason why it lacks
// what they stand on. The kubelet tells that by events, which nobody keeps here.
func (s store) groundless(pod *v1.Pod) {
	begun := func(cs v1.ContainerStatus) bool { return cs.ContainerID != "" }
	st := &pod.Status
	if st.Phase != v1.PodPending || slices.ContainsFunc(slices.Concat(st.InitContainerStatuses, st.ContainerStatuses), begun) {
		return
	}
	if f, ok := s.failures(pod.UID)[ground]; ok {
		st.Reason, st.Message = f.Reason, f.Message
	}
}

// waitingFor returns why the containers wait: what this process knows, and what it or
// another recorded of those that have not been started since.
func (p *Pods) waitingFor(st *podState, uid types.UID, containers map[string]engine.Container) map[string]waiting {
	now := st.waitingNow()
	for name, f := range p.store.failures(uid) {
		_, known := now[name]
		c, ok := containers[name]
		unstarted := !ok || c.Attempt < f.Attempt || (c.Attempt == f.Attempt && c.Exit.Reason == reasonStartError)
		if !known && unstarted {
			now[name] = waiting{f.Reason, f.Message}
		}
	}
	return now
}
