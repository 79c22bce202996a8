package runonce

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
	jobBackOffBase = 10 * time.Second
	jobBackOffMax  = 10 * time.Minute
)

// jobRules are the name and the spec of a Job.
type jobRules struct {
	Name string `json:"name"`
	batchv1.JobSpec
}

// verdict is why a Job, or one index of it, has failed, in the words of its controller.
type verdict struct{ reason, message string }

// job does for the pods of a Job what its controller does in a cluster: it says how many
// may be active at once, whether a failed one is tried again and when, and when the Job as
// a whole has failed. It is safe for concurrent use.
type job struct {
	rules jobRules

	mu        sync.Mutex
	active    int
	waiting   []jobWaiter // for one to end
	failures  int         // of all pods, that count towards the limit
	streak    int         // failures since a pod succeeded
	byPod     map[types.UID]int
	restarted map[types.UID]int
	indexes   int // that have failed for good
	timer     *time.Timer
	verdict   verdict
	over      chan struct{} // closed when the Job has failed
}

// jobWaiter is a pod that waits to become active.
type jobWaiter struct {
	uid types.UID
	in  chan struct{}
}

// jobs are the Jobs of a run, by namespace and name.
type jobs map[string]*job

// of returns the Job that the pod belongs to, nil for none. Pods of one Job get the same.
func (js jobs) of(pod *v1.Pod) *job {
	var r jobRules
	if err := json.Unmarshal([]byte(pod.Annotations[podspec.AnnotationJob]), &r); err != nil {
		return nil
	}
	key := pod.Namespace + "/" + r.Name
	if js[key] == nil {
		js[key] = &job{rules: r, byPod: map[types.UID]int{}, restarted: map[types.UID]int{}, over: make(chan struct{})}
	}
	return js[key]
}

// stop ends the deadlines of the Jobs.
func (js jobs) stop() {
	for _, j := range js {
		j.mu.Lock()
		if j.timer != nil {
			j.timer.Stop()
		}
		j.mu.Unlock()
	}
}

// done is closed when the Job has failed; why then tells. A nil Job never fails.
func (j *job) done() <-chan struct{} {
	if j == nil {
		return nil
	}
	return j.over
}

// why tells why the Job has failed; zero while it has not.
func (j *job) why() verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.verdict
}

// fail makes the verdict stand, unless there is one. The lock is held.
func (j *job) fail(v verdict) verdict {
	if j.verdict == (verdict{}) {
		j.verdict = v
		close(j.over)
	}
	return j.verdict
}

// recall takes over the verdict of an earlier run from the status of one of its pods.
func (j *job) recall(st v1.PodStatus) {
	if j.final(st) && st.Reason != batchv1.JobReasonFailedIndexes {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail(verdict{st.Reason, st.Message})
	}
}

// final says whether the pod has failed by a verdict on its Job, and not by itself.
func (j *job) final(st v1.PodStatus) bool {
	switch st.Reason {
	case batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonPodFailurePolicy,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes:
		return st.Phase == v1.PodFailed
	case batchv1.JobReasonDeadlineExceeded:
		return st.Phase == v1.PodFailed && st.Message == deadlineExceeded().message
	}
	return false
}

// enter asks for a place among the active pods. The channel is closed when there is one.
func (j *job) enter(uid types.UID) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := jobWaiter{uid, make(chan struct{})}
	if j.rules.Parallelism == nil || j.active < int(*j.rules.Parallelism) {
		j.active++
		close(t.in)
		return t.in
	}
	j.waiting = append(j.waiting, t)
	return t.in
}

// resume counts a pod that is active from an earlier run, in which it failed as often as
// said.
func (j *job) resume(uid types.UID, failures int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.active++
	j.byPod[uid] = failures
	j.failures += failures
	j.streak += failures
}

// leave gives the place of a pod that has ended to the next one.
func (j *job) leave(uid types.UID, succeeded bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.restarted, uid) // only active pods count, as in the controller
	if succeeded {
		j.streak = 0
	}
	if at := slices.IndexFunc(j.waiting, func(t jobWaiter) bool { return t.uid == uid }); at >= 0 {
		j.waiting = slices.Delete(j.waiting, at, at+1)
		return
	}
	if len(j.waiting) == 0 {
		j.active--
		return
	}
	close(j.waiting[0].in)
	j.waiting = j.waiting[1:]
}

// begin starts the Job's deadline with its first pod.
func (j *job) begin() {
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
func deadlineExceeded() verdict {
	return verdict{batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}
}

// limitExceeded is the verdict on a Job that failed too often.
func limitExceeded() verdict {
	return verdict{batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}
}

// nextTry is what comes after the failure of a pod.
type nextTry struct {
	// again says that the pod is tried again, after so long.
	again bool
	after time.Duration
	// failures is how often this pod has failed.
	failures int
	// verdict is why it is not tried again.
	verdict verdict
}

// failed counts a pod that has failed and says what comes next, as syncJob and
// manageJob of pkg/controller/job/job_controller.go do: the failure policy decides, then
// the limit of the index, then that of the Job.
func (j *job) failed(pod *v1.Pod, st v1.PodStatus) nextTry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.verdict != (verdict{}) {
		return nextTry{verdict: j.verdict}
	}
	if j.outOfTime(pod, st) {
		return nextTry{verdict: j.fail(deadlineExceeded())}
	}
	action, message := matchFailurePolicy(j.rules.PodFailurePolicy, pod, st)
	switch action {
	case batchv1.PodFailurePolicyActionFailJob:
		return nextTry{verdict: j.fail(verdict{batchv1.JobReasonPodFailurePolicy, message})}
	case batchv1.PodFailurePolicyActionIgnore:
		return nextTry{again: true, after: jobBackOff(1), failures: j.byPod[pod.UID]}
	case batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex:
	}
	j.failures++
	j.streak++
	j.byPod[pod.UID]++
	mine := j.byPod[pod.UID]
	perIndex := j.rules.BackoffLimitPerIndex
	if action == batchv1.PodFailurePolicyActionFailIndex || perIndex != nil && mine > int(*perIndex) {
		return nextTry{failures: mine, verdict: j.failIndex()}
	}
	if j.failures > j.limit() {
		return nextTry{failures: mine, verdict: j.fail(limitExceeded())}
	}
	since := j.streak
	if perIndex != nil {
		since = mine
	}
	return nextTry{again: true, after: jobBackOff(since), failures: mine}
}

// outOfTime says whether the pod was ended by the deadline of its Job.
func (j *job) outOfTime(pod *v1.Pod, st v1.PodStatus) bool {
	whole, own := j.rules.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds
	return st.Reason == "DeadlineExceeded" && whole != nil && own != nil && *whole == *own
}

// failIndex counts an index that has failed for good; the others go on, unless too many
// have.
func (j *job) failIndex() verdict {
	j.indexes++
	if most := j.rules.MaxFailedIndexes; most != nil && j.indexes > int(*most) {
		return j.fail(verdict{batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"})
	}
	return verdict{batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
}

// restarts notes how often the containers of an active pod were restarted, one of which
// is down, and says whether it may be restarted once more. The controller counts likewise
// (pastBackoffLimitOnFailure), but it ends a pod whose last restart has just begun; here
// a limit of n means n restarts.
func (j *job) restarts(uid types.UID, n int) (verdict, bool) {
	if j == nil {
		return verdict{}, true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restarted[uid] = n
	all := 0
	for _, n := range j.restarted {
		all += n
	}
	if j.verdict == (verdict{}) && all < j.limit() {
		return verdict{}, true
	}
	return j.fail(limitExceeded()), false
}

func (j *job) limit() int {
	if j.rules.BackoffLimit == nil {
		return math.MaxInt32
	}
	return int(*j.rules.BackoffLimit)
}

// jobBackOff is how long the next try waits after so many failures.
func jobBackOff(failures int) time.Duration {
	d := jobBackOffBase
	for range failures - 1 {
		if d *= 2; d >= jobBackOffMax {
			return jobBackOffMax
		}
	}
	return d
}
