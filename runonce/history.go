package runonce

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// history is what a run has seen of the instances of a pod's containers, by the container's
// name. It goes by the restart counts and terminations in the status, since a container may
// crash while nobody watches.
type history map[string]instances

// instances are those of one container.
type instances struct {
	restarts int           // before this run
	started  bool          // whether an instance was started before this run
	ended    int           // how many ended before this run
	longest  time.Duration // the longest life of one that ended in this run
	start    time.Time     // of the one that runs, by the clock of the machine
	seen     time.Time     // when this run first saw it, which a change of that clock does not affect
}

// newHistory returns the history of a pod whose first status this is.
func newHistory(st v1.PodStatus) history {
	h := history{}
	for _, cs := range podspec.Statuses(st) {
		i := instances{restarts: int(cs.RestartCount), started: wasStarted(cs), ended: int(cs.RestartCount)}
		if isDown(cs) {
			i.ended++
		}
		h[cs.Name] = i
	}
	return h
}

// wasStarted says whether an instance of the container was ever started.
func wasStarted(cs v1.ContainerStatus) bool {
	return cs.State.Running != nil || podspec.LastTermination(cs) != nil
}

// isDown says whether the newest instance of the container has ended. A container that waits may have
// one that has not: its postStart hook has yet to complete.
func isDown(cs v1.ContainerStatus) bool {
	t := podspec.LastTermination(cs)
	return t != nil && cs.State.Running == nil && (cs.State.Terminated != nil || t.ContainerID == cs.ContainerID)
}

// add notes how long the instances in the status lived in a run that began at the given time, and
// which one runs now.
func (h history) add(st v1.PodStatus, begin, now time.Time) {
	for _, cs := range podspec.Statuses(st) {
		i := h[cs.Name]
		if r := cs.State.Running; r != nil && (i.seen.IsZero() || !i.start.Equal(r.StartedAt.Time)) {
			i.start, i.seen = r.StartedAt.Time, now
		}
		for _, t := range []*v1.ContainerStateTerminated{cs.State.Terminated, cs.LastTerminationState.Terminated} {
			if t == nil || !t.FinishedAt.After(begin) {
				continue
			}
			from := t.StartedAt.Time
			if from.Before(begin) {
				from = begin
			}
			i.longest = max(i.longest, t.FinishedAt.Sub(from))
		}
		h[cs.Name] = i
	}
}

// crashes is how many instances of the container have ended in this run.
func (h history) crashes(cs v1.ContainerStatus) int {
	n := int(cs.RestartCount) - h[cs.Name].ended
	if isDown(cs) {
		n++
	}
	return n
}

// restarts is how often the containers were restarted in this run.
func (h history) restarts(st v1.PodStatus) int {
	n := 0
	for _, cs := range podspec.Statuses(st) {
		n += max(0, int(cs.RestartCount)-h[cs.Name].restarts)
	}
	return n
}

// unchanged says whether all instances in the status were started before this run.
func (h history) unchanged(st v1.PodStatus) bool {
	for _, cs := range podspec.Statuses(st) {
		i := h[cs.Name]
		if int(cs.RestartCount) > i.restarts || wasStarted(cs) && !i.started {
			return false
		}
	}
	return true
}
