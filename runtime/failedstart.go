package runtime

import (
	"maps"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"k8s.io/apimachinery/pkg/types"
)

// startsFile holds the failed starts of a pod, beside its record.
const startsFile = "failed-starts.json"

// What CRI runtimes say of a container that was made and could not be started
// (containerd's internal/cri/server, errorStartReason and errorStartExitCode).
const (
	reasonStartError   = "StartError"
	startErrorExitCode = 128
)

// failedStarts are the newest instances of containers that could not be started for good. An
// engine keeps nothing of them, but for the pod they count as instances that have ended.
type failedStarts map[string]engine.Container

// failedStart keeps that the instance could not be started, when no retry can mend that.
func (p *Pods) failedStart(at place, next start, cfg engine.ContainerConfig, err error) error {
	if !failure.IsPermanent(err) || failure.Reason(err, "") != ReasonRunError {
		return nil
	}
	now := time.Now()
	known := maps.Clone(at.st.failedStarts(p.store, at.pod.UID))
	if known == nil {
		known = failedStarts{}
	}
	known[next.container.Name] = engine.Container{
		ID: cfg.ID, PodUID: cfg.PodUID, Name: cfg.Name, Attempt: cfg.Attempt, Image: cfg.Image,
		Labels: cfg.Labels, State: engine.StateExited, CreatedAt: now, StartedAt: now, Last: next.last,
		Exit: engine.Exit{ExitCode: startErrorExitCode, Reason: reasonStartError, Message: err.Error(), StartedAt: now, FinishedAt: now},
	}
	if err := p.store.keep(at.pod.UID, startsFile, known); err != nil {
		return err
	}
	at.st.memo.Lock()
	defer at.st.memo.Unlock()
	at.st.starts = known
	return nil
}

// failedStarts returns what is known of the pod's failed starts. It is not to be changed.
func (st *podState) failedStarts(s store, uid types.UID) failedStarts {
	st.memo.Lock()
	defer st.memo.Unlock()
	if st.starts == nil {
		st.starts = s.loadFailedStarts(uid)
	}
	return st.starts
}

// loadFailedStarts returns none where the record is torn: the start is tried again then.
func (s store) loadFailedStarts(uid types.UID) failedStarts {
	known := failedStarts{}
	if s.recall(uid, startsFile, &known) != nil {
		return failedStarts{}
	}
	return known
}
