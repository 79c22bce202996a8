// Package job does for the pods of a Job what its controller does in a cluster: it says
// how many may be active at once, whether a failed one is tried again and when, and when
// the Job as a whole has failed.
package job

import (
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// The back-off between the tries of failed pods (DefaultJobPodFailureBackOff and
// MaxJobPodFailureBackOff of pkg/controller/job/job_controller.go).
const (
	backOffBase = 10 * time.Second
	backOffMax  = 10 * time.Minute
)

// rules are the name and the spec of a Job.
type rules struct {
	Name string `json:"name"`
	batchv1.JobSpec
}

// Verdict is why a Job, or one index of it, has failed, in the words of its controller.
type Verdict struct{ Reason, Message string }

// Job is a Job with pods in this run. It is safe for concurrent use.
type Job struct {
	rules rules

	mu       sync.Mutex
	active   int
	line     []turn // of those that wait for one to end
	failures int    // of all pods, that count towards the limit
	streak   int    // failures since a pod succeeded
	byPod    map[types.UID]int
	restarts map[types.UID]int
	indexes  int // that have failed for good
	timer    *time.Timer
	verdict  Verdict
	over     chan struct{} // closed when the Job has failed
}

// turn is a pod that waits to become active.
type turn struct {
	uid types.UID
	in  chan struct{}
}

// Jobs are the Jobs of a run, by namespace and name.
type Jobs map[string]*Job

// Of returns the Job that the pod belongs to, nil for none. Pods of one Job get the same.
func (js Jobs) Of(pod *v1.Pod) *Job {
	var r rules
	if err := json.Unmarshal([]byte(pod.Annotations[podspec.AnnotationJob]), &r); err != nil {
		return nil
	}
	key := pod.Namespace + "/" + r.Name
	if js[key] == nil {
		js[key] = &Job{rules: r, byPod: map[types.UID]int{}, restarts: map[types.UID]int{}, over: make(chan struct{})}
	}
	return js[key]
}

// Stop ends the deadlines of the Jobs.
func (js Jobs) Stop() {
	for _, j := range js {
		j.mu.Lock()
		if j.timer != nil {
			j.timer.Stop()
		}
		j.mu.Unlock()
	}
}

// Over is closed when the Job has failed; Verdict then says why. A nil Job never fails.
func (j *Job) Over() <-chan struct{} {
	if j == nil {
		return nil
	}
	return j.over
}

// Verdict is why the Job has failed, zero while it has not.
func (j *Job) Verdict() Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.verdict
}

// fail makes the verdict stand, unless there is one. The lock is held.
func (j *Job) fail(v Verdict) Verdict {
	if j.verdict == (Verdict{}) {
		j.verdict = v
		close(j.over)
	}
	return j.verdict
}

// Recall takes over the verdict of an earlier run from the status of one of its pods.
func (j *Job) Recall(st v1.PodStatus) {
	if j.Final(st) && st.Reason != batchv1.JobReasonFailedIndexes {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail(Verdict{st.Reason, st.Message})
	}
}

// Final says whether the pod has failed by a verdict on its Job, and not by itself.
func (j *Job) Final(st v1.PodStatus) bool {
	switch st.Reason {
	case batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonPodFailurePolicy,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes:
		return st.Phase == v1.PodFailed
	case batchv1.JobReasonDeadlineExceeded:
		return st.Phase == v1.PodFailed && st.Message == deadlineExceeded().Message
	}
	return false
}

// Enter asks for a place among the active pods. The channel is closed when there is one.
func (j *Job) Enter(uid types.UID) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := turn{uid, make(chan struct{})}
	if j.rules.Parallelism == nil || j.active < int(*j.rules.Parallelism) {
		j.active++
		close(t.in)
		return t.in
	}
	j.line = append(j.line, t)
	return t.in
}

// Resume counts a pod that is active from an earlier run, in which it failed as often as
// said.
func (j *Job) Resume(uid types.UID, failures int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.active++
	j.byPod[uid] = failures
	j.failures += failures
	j.streak += failures
}

// Leave gives the place of a pod that has ended to the next one.
func (j *Job) Leave(uid types.UID, succeeded bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.restarts, uid) // only active pods count, as in the controller
	if succeeded {
		j.streak = 0
	}
	if at := slices.IndexFunc(j.line, func(t turn) bool { return t.uid == uid }); at >= 0 {
		j.line = slices.Delete(j.line, at, at+1)
		return
	}
	if len(j.line) == 0 {
		j.active--
		return
	}
	close(j.line[0].in)
	j.line = j.line[1:]
}

// Begin starts the Job's deadline with its first pod.
func (j *Job) Begin() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rules.ActiveDeadlineSeconds == nil || j.timer != nil {
		return
	}
	j.timer = time.AfterFunc(time.Duration(*j.rules.ActiveDeadlineSeconds)*time.Second, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail(deadlineExceeded())
	})
}

// deadlineExceeded is the verdict on a Job that took too long.
func deadlineExceeded() Verdict {
	return Verdict{batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}
}

// limitExceeded is the verdict on a Job that failed too often.
func limitExceeded() Verdict {
	return Verdict{batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}
}

// Next is what comes after the failure of a pod.
type Next struct {
	// Again says that the pod is tried again, After so long.
	Again bool
	After time.Duration
	// Failures is how often this pod has failed.
	Failures int
	// Verdict is why it is not tried again.
	Verdict Verdict
}

// Failed counts a pod that has failed and says what comes next, as syncJob and
// manageJob of pkg/controller/job/job_controller.go do: the failure policy decides, then
// the limit of the index, then that of the Job.
func (j *Job) Failed(pod *v1.Pod, st v1.PodStatus) Next {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.verdict != (Verdict{}) {
		return Next{Verdict: j.verdict}
	}
	if j.outOfTime(pod, st) {
		return Next{Verdict: j.fail(deadlineExceeded())}
	}
	action, message := match(j.rules.PodFailurePolicy, pod, st)
	switch action {
	case batchv1.PodFailurePolicyActionFailJob:
		return Next{Verdict: j.fail(Verdict{batchv1.JobReasonPodFailurePolicy, message})}
	case batchv1.PodFailurePolicyActionIgnore:
		return Next{Again: true, After: backOff(1), Failures: j.byPod[pod.UID]}
	case batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex:
	}
	j.failures++
	j.streak++
	j.byPod[pod.UID]++
	mine := j.byPod[pod.UID]
	perIndex := j.rules.BackoffLimitPerIndex
	if action == batchv1.PodFailurePolicyActionFailIndex || perIndex != nil && mine > int(*perIndex) {
		return Next{Failures: mine, Verdict: j.failIndex()}
	}
	if j.failures > j.limit() {
		return Next{Failures: mine, Verdict: j.fail(limitExceeded())}
	}
	since := j.streak
	if perIndex != nil {
		since = mine
	}
	return Next{Again: true, After: backOff(since), Failures: mine}
}

// outOfTime says whether the pod was ended by the deadline of its Job.
func (j *Job) outOfTime(pod *v1.Pod, st v1.PodStatus) bool {
	whole, own := j.rules.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds
	return st.Reason == "DeadlineExceeded" && whole != nil && own != nil && *whole == *own
}

// failIndex counts an index that has failed for good; the others go on, unless too many
// have.
func (j *Job) failIndex() Verdict {
	j.indexes++
	if most := j.rules.MaxFailedIndexes; most != nil && j.indexes > int(*most) {
		return j.fail(Verdict{batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"})
	}
	return Verdict{batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
}

// Restarts notes how often the containers of an active pod were restarted, one of which
// is down, and says whether it may be restarted once more. The controller counts likewise
// (pastBackoffLimitOnFailure), but it ends a pod whose last restart has just begun; here
// a limit of n means n restarts.
func (j *Job) Restarts(uid types.UID, n int) (Verdict, bool) {
	if j == nil {
		return Verdict{}, true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restarts[uid] = n
	all := 0
	for _, n := range j.restarts {
		all += n
	}
	if j.verdict == (Verdict{}) && all < j.limit() {
		return Verdict{}, true
	}
	return j.fail(limitExceeded()), false
}

func (j *Job) limit() int {
	if j.rules.BackoffLimit == nil {
		return math.MaxInt32
	}
	return int(*j.rules.BackoffLimit)
}

// backOff is how long the next try waits after so many failures.
func backOff(failures int) time.Duration {
	d := backOffBase
	for range failures - 1 {
		if d *= 2; d >= backOffMax {
			return backOffMax
		}
	}
	return d
}
