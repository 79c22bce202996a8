package runonce

import (
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

// Why a Job, or one of its indexes, has failed, in the words of its controller.
var (
	deadlineExceeded = failed(batchv1.JobReasonDeadlineExceeded, podspec.MessageJobDeadline)
	limitExceeded    = failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	tooManyIndexes   = failed(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	indexFailed      = failed(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	failureIgnored   = failed(podspec.ReasonFailureIgnored, "ignored, because another worker of the Job has succeeded")
)

// job is the controller of a Job: it decides how many of its pods are active at once, whether
// and when a failed one is retried, and when the Job has failed. It is safe for concurrent use.
type job struct {
	spec   podspec.Job
	active semaphore // of the active pods
	wake   []func()  // the pods

	mu            sync.Mutex
	failures      int // of all pods, that count towards the limit
	streak        int // failures since a pod succeeded
	podFailures   map[types.UID]int
	podRestarts   map[types.UID]int
	failedIndexes int
	timer         *time.Timer
	failure       condition // of the pods when the Job has failed
	succeeded     bool      // whether a pod has, and no number of completions is wanted
}

// jobs are the Jobs of a run, by namespace and name.
type jobs map[string]*job

// of returns the Job that the pod belongs to, nil for none. Pods of one Job get the same.
func (js jobs) of(pod *v1.Pod) *job {
	spec, ok := podspec.JobOf(pod)
	if !ok {
		return nil
	}
	key := pod.Namespace + "/" + spec.Name
	if js[key] == nil {
		parallelism := math.MaxInt
		if spec.Parallelism != nil {
			parallelism = int(*spec.Parallelism)
		}
		js[key] = &job{
			spec: spec, active: semaphore{free: parallelism},
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

// verdict returns why a pod has to end, zero if it may go on: the Job has failed, or the pod is to
// be replaced although another worker has succeeded, which is enough without a number of
// completions (manageJob).
func (j *job) verdict(replaced bool) condition {
	j.mu.Lock()
	defer j.mu.Unlock()
	if replaced && j.succeeded && !j.failure.ended {
		return failureIgnored
	}
	return j.failure
}

// fail makes the Job fail, unless it has already, and returns why it has. The lock is held.
func (j *job) fail(c condition) condition {
	if !j.failure.ended {
		j.failure = c
		j.wakePods()
	}
	return j.failure
}

func (j *job) wakePods() {
	for _, wake := range j.wake {
		wake()
	}
}

// resume counts a pod that is active from an earlier run, with its failures there, before any
// other becomes active. It returns its turn.
func (j *job) resume(uid types.UID, failures int) *waiter {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.podFailures[uid] = failures
	j.failures += failures
	j.streak += failures
	return j.active.take()
}

// leave counts a pod that has ended, which lets the next one become active.
func (j *job) leave(uid types.UID, turn *waiter, succeeded bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.podRestarts, uid) // only active pods count, as in the controller
	if succeeded {
		j.streak = 0
		if j.spec.Completions == nil && !j.succeeded {
			j.succeeded = true
			j.wakePods()
		}
	}
	j.active.leave(turn)
}

// startDeadline starts the Job's deadline when its first pod starts.
func (j *job) startDeadline() {
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
	failure  condition     // if the pod is not retried
	after    time.Duration // the delay before the retry
	failures int           // how often this pod has failed
}

// podFailed counts a failed pod and decides on a retry, as syncJob and manageJob of
// pkg/controller/job/job_controller.go do: by the failure policy, then by the limit of the
// index, then by that of the Job.
func (j *job) podFailed(pod *v1.Pod, st v1.PodStatus) retryDecision {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure.ended {
		return retryDecision{failure: j.failure}
	}
	if j.pastDeadline(pod, st) {
		return retryDecision{failure: j.fail(deadlineExceeded)}
	}
	action, message := matchFailurePolicy(j.spec.PodFailurePolicy, pod, st)
	switch action {
	case batchv1.PodFailurePolicyActionFailJob:
		return retryDecision{failure: j.fail(failed(batchv1.JobReasonPodFailurePolicy, message))}
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
	case j.succeeded:
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
func (j *job) failIndex() condition {
	j.failedIndexes++
	if limit := j.spec.MaxFailedIndexes; limit != nil && j.failedIndexes > int(*limit) {
		return j.fail(tooManyIndexes)
	}
	return indexFailed
}

// mayRestart notes how often the containers of an active pod were restarted, one of which is
// down, and says whether it may be restarted again; if not, the Job has failed. The controller
// counts the same (pastBackoffLimitOnFailure), but ends a pod whose last restart has just begun;
// here a limit of n means n restarts.
func (j *job) mayRestart(uid types.UID, st v1.PodStatus) bool {
	left := j.restartsLeft(uid, st)
	j.mu.Lock()
	defer j.mu.Unlock()
	if left == 0 {
		j.fail(limitExceeded)
	}
	return !j.failure.ended
}

// restartsLeft notes how often the containers of an active pod were restarted, and returns how often
// those of all pods may be restarted yet.
func (j *job) restartsLeft(uid types.UID, st v1.PodStatus) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.podRestarts[uid] = history{}.restarts(st)
	left := j.limit()
	for _, n := range j.podRestarts {
		left -= n
	}
	return max(0, left)
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
