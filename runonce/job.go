package runonce

import (
	"encoding/json"
	"math"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// The back-off between retries of failed pods (DefaultJobPodFailureBackOff and
// MaxJobPodFailureBackOff of pkg/controller/job/job_controller.go).
const (
	jobBackOffBase = 10 * time.Second
	jobBackOffMax  = 10 * time.Minute
)

// jobFailure is why a Job, or one of its indexes, has failed, in the words of its controller.
type jobFailure struct{ reason, message string }

var (
	deadlineExceeded = jobFailure{batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}
	limitExceeded    = jobFailure{batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}
	tooManyIndexes   = jobFailure{batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"}
	indexFailed      = jobFailure{batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
	failureIgnored   = jobFailure{podspec.ReasonFailureIgnored, "ignored, because another worker of the Job has succeeded"}
)

// job is the controller of a Job: it decides how many of its pods are active at once, whether
// and when a failed one is retried, and when the Job has failed. It is safe for concurrent use.
type job struct {
	spec   podspec.Job
	active semaphore // of the active pods

	mu            sync.Mutex
	failures      int // of all pods, that count towards the limit
	streak        int // failures since a pod succeeded
	podFailures   map[types.UID]int
	podRestarts   map[types.UID]int
	failedIndexes int
	timer         *time.Timer
	failure       jobFailure
	failed        chan struct{} // closed when the Job has failed
	succeeded     chan struct{} // closed when a pod has succeeded and no number of completions is wanted
}

// jobs are the Jobs of a run, by namespace and name.
type jobs map[string]*job

// of returns the Job that the pod belongs to, nil for none. Pods of one Job get the same.
func (js jobs) of(pod *v1.Pod) *job {
	var spec podspec.Job
	if err := json.Unmarshal([]byte(pod.Annotations[podspec.AnnotationJob]), &spec); err != nil {
		return nil
	}
	key := pod.Namespace + "/" + spec.Name
	if js[key] == nil {
		parallelism := math.MaxInt
		if spec.Parallelism != nil {
			parallelism = int(*spec.Parallelism)
		}
		js[key] = &job{
			spec: spec, active: semaphore{free: parallelism}, failed: make(chan struct{}), succeeded: make(chan struct{}),
			podFailures: map[types.UID]int{}, podRestarts: map[types.UID]int{},
		}
	}
	return js[key]
}

// close stops the deadlines of the Jobs.
func (js jobs) close() {
	for _, j := range js {
		j.mu.Lock()
		if j.timer != nil {
			j.timer.Stop()
		}
		j.mu.Unlock()
	}
}

// done is closed when the Job has failed. A nil Job never fails.
func (j *job) done() <-chan struct{} {
	if j == nil {
		return nil
	}
	return j.failed
}

// complete says whether no pod of the Job is retried any more: it has no number of completions, and one
// worker has succeeded, which is enough (manageJob).
func (j *job) complete() bool {
	select {
	case <-j.succeeded:
		return true
	default:
		return false
	}
}

// why returns why the Job has failed; zero while it has not.
func (j *job) why() jobFailure {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure
}

// fail makes the Job fail, unless it has already, and returns why it has. The lock is held.
func (j *job) fail(f jobFailure) jobFailure {
	if j.failure == (jobFailure{}) {
		j.failure = f
		close(j.failed)
	}
	return j.failure
}

// failedWithJob says whether the pod was failed because of its Job, and not by itself.
func failedWithJob(st v1.PodStatus) bool {
	switch st.Reason {
	case podspec.ReasonFailureIgnored, batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonPodFailurePolicy,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes:
		return st.Phase == v1.PodFailed
	case batchv1.JobReasonDeadlineExceeded:
		return st.Phase == v1.PodFailed && st.Message == deadlineExceeded.message
	}
	return false
}

// resume counts a pod that is active from an earlier run, with its failures there, before any
// other becomes active.
func (j *job) resume(uid types.UID, failures int) {
	j.active.free-- // below 0 if more are active than may be
	j.mu.Lock()
	defer j.mu.Unlock()
	j.podFailures[uid] = failures
	j.failures += failures
	j.streak += failures
}

// leave counts a pod that has ended, which lets the next one become active.
func (j *job) leave(uid types.UID, slot *waiter, succeeded bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	delete(j.podRestarts, uid) // only active pods count, as in the controller
	if succeeded {
		j.streak = 0
		if j.spec.Completions == nil && !j.complete() {
			close(j.succeeded)
		}
	}
	j.mu.Unlock()
	j.active.leave(slot)
}

// startDeadline starts the Job's deadline when its first pod starts.
func (j *job) startDeadline() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.spec.ActiveDeadlineSeconds == nil || j.timer != nil {
		return
	}
	j.timer = time.AfterFunc(time.Duration(*j.spec.ActiveDeadlineSeconds)*time.Second, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.fail(deadlineExceeded)
	})
}

// retryDecision is what follows from the failure of a pod.
type retryDecision struct {
	failure  jobFailure    // why the pod is not retried; zero if it is
	after    time.Duration // the delay before the retry
	failures int           // how often this pod has failed
}

// podFailed counts a failed pod and decides on a retry, as syncJob and manageJob of
// pkg/controller/job/job_controller.go do: by the failure policy, then by the limit of the
// index, then by that of the Job.
func (j *job) podFailed(pod *v1.Pod, st v1.PodStatus) retryDecision {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure != (jobFailure{}) {
		return retryDecision{failure: j.failure}
	}
	if j.pastDeadline(pod, st) {
		return retryDecision{failure: j.fail(deadlineExceeded)}
	}
	action, message := matchFailurePolicy(j.spec.PodFailurePolicy, pod, st)
	switch action {
	case batchv1.PodFailurePolicyActionFailJob:
		return retryDecision{failure: j.fail(jobFailure{batchv1.JobReasonPodFailurePolicy, message})}
	case batchv1.PodFailurePolicyActionIgnore:
		return retryDecision{after: jobBackOff(1), failures: j.podFailures[pod.UID]}
	case batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex:
	}
	j.failures++
	j.streak++
	j.podFailures[pod.UID]++
	streak, own, ownLimit := j.streak, j.podFailures[pod.UID], j.spec.BackoffLimitPerIndex
	switch {
	case action == batchv1.PodFailurePolicyActionFailIndex || ownLimit != nil && own > int(*ownLimit):
		return retryDecision{failure: j.failIndex()}
	case j.failures > j.limit():
		return retryDecision{failure: j.fail(limitExceeded)}
	case j.complete():
		return retryDecision{failure: failureIgnored}
	case ownLimit != nil:
		streak = own
	}
	return retryDecision{after: jobBackOff(streak), failures: own}
}

// pastDeadline says whether the pod was ended by the deadline of its Job.
func (j *job) pastDeadline(pod *v1.Pod, st v1.PodStatus) bool {
	deadline, own := j.spec.ActiveDeadlineSeconds, pod.Spec.ActiveDeadlineSeconds
	return st.Reason == "DeadlineExceeded" && deadline != nil && own != nil && *deadline == *own
}

// failIndex counts an index that has failed for good. The others go on unless there are too
// many of these.
func (j *job) failIndex() jobFailure {
	j.failedIndexes++
	if limit := j.spec.MaxFailedIndexes; limit != nil && j.failedIndexes > int(*limit) {
		return j.fail(tooManyIndexes)
	}
	return indexFailed
}

// mayRestart notes how often the containers of an active pod were restarted, one of which is
// down, and says whether it may be restarted again, or else why not. The controller counts
// the same (pastBackoffLimitOnFailure), but ends a pod whose last restart has just begun; here
// a limit of n means n restarts.
func (j *job) mayRestart(uid types.UID, restarts int) (jobFailure, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.podRestarts[uid] = restarts
	all := 0
	for _, n := range j.podRestarts {
		all += n
	}
	if j.failure == (jobFailure{}) && all < j.limit() {
		return jobFailure{}, true
	}
	return j.fail(limitExceeded), false
}

func (j *job) limit() int {
	if j.spec.BackoffLimit == nil {
		return math.MaxInt32
	}
	return int(*j.spec.BackoffLimit)
}

// jobBackOff is the delay before the next retry after so many failures.
func jobBackOff(failures int) time.Duration {
	d, _ := Backoff{Delay: jobBackOffBase, Factor: 2}.At(failures - 1)
	return min(d, jobBackOffMax)
}
