package cmd

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
)

// webAs is a definition of the pod "web".
func webAs(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid, Annotations: map[string]string{podspec.AnnotationSource: string(uid)}}}
}

// plan has the rollbacks plan for a version of the pod, and returns the one that runs.
func (r *rollbacks) plan(uid types.UID) types.UID {
	set := &manifests.Set{Pods: []*v1.Pod{webAs(uid)}}
	r.apply(set)
	r.begin(admit.Plan{Decisions: []admit.Decision{{Pod: set.Pods[0], Verdict: admit.Admitted}}}, set)
	return set.Pods[0].UID
}

// say tells the rollbacks of the pod.
func (r *rollbacks) say(uid types.UID, state, message string) bool {
	return r.note(runonce.Progress{Pod: webAs(uid), State: state, Message: message})
}

// isDue says whether there is something to roll back.
func (r *rollbacks) isDue() bool {
	select {
	case <-r.due:
		return true
	default:
		return false
	}
}

// TestRollbacks: what runs after the events of a changed pod.
func TestRollbacks(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for _, tc := range []struct {
		name  string
		limit time.Duration
		act   func(t *testing.T, r *rollbacks)
		due   bool
		want  types.UID // of the plan that is made then
	}{
		{"it fails", limit, func(_ *testing.T, r *rollbacks) { r.say("new", "Failed", "no") }, true, "old"},
		{"it succeeds", limit, func(t *testing.T, r *rollbacks) {
			r.say("new", "Starting", "")
			if !r.say("new", "Running", "") || r.say("new", "Running", "") {
				t.Error("it reaches its goal once")
			}
			time.Sleep(2 * limit)
		}, false, "new"},
		{"it takes too long", limit, func(_ *testing.T, r *rollbacks) {
			time.Sleep(time.Hour) // before it is started
			r.say("new", "Starting", "")
			time.Sleep(limit + time.Second)
		}, true, "old"},
		{"it takes long", limit, func(_ *testing.T, r *rollbacks) {
			r.say("new", "Pulling", "")
			r.say("new", "Starting", "")
			time.Sleep(limit - time.Second)
		}, false, "new"},
		{"there is no limit", 0, func(_ *testing.T, r *rollbacks) {
			r.say("new", "Starting", "")
			time.Sleep(time.Hour)
		}, false, "new"},
		{"its time goes on with another plan", limit, func(_ *testing.T, r *rollbacks) {
			r.say("new", "Starting", "")
			time.Sleep(limit / 2)
			r.plan("new")
			time.Sleep(limit/2 + time.Second)
		}, true, "old"},
		{"the time of the one before it does not count", limit, func(_ *testing.T, r *rollbacks) {
			r.plan("between")
			r.say("between", "Starting", "")
			time.Sleep(limit / 2)
			r.plan("new")
			r.say("new", "Starting", "")
			time.Sleep(limit/2 + time.Second)
		}, false, "new"},
		{"it succeeds late, before there is another plan", limit, func(t *testing.T, r *rollbacks) {
			r.say("new", "Starting", "")
			time.Sleep(limit + time.Second)
			if !r.say("new", "Ready", "") {
				t.Error("it does not reach its goal")
			}
		}, true, "new"},
		{"the one before it stops", limit, func(_ *testing.T, r *rollbacks) { r.say("old", "Failed", "killed") }, false, "new"},
		{"it is removed", limit, func(_ *testing.T, r *rollbacks) {
			r.say("new", "Starting", "")
			r.say("new", "Removed", "by down")
			time.Sleep(limit + time.Second)
		}, false, "new"},
		{"it is rejected", limit, func(t *testing.T, r *rollbacks) {
			if !r.refuse(admit.Plan{Decisions: []admit.Decision{{Pod: webAs("new"), Verdict: admit.Rejected, Reason: "OutOfcpu"}}}) {
				t.Error("it has no former definition")
			}
			if r.refuse(admit.Plan{Decisions: []admit.Decision{{Pod: webAs("old"), Verdict: admit.Rejected}}}) {
				t.Error("it is in its own place")
			}
		}, false, "old"},
		{"it fails and is tried again", limit, func(_ *testing.T, r *rollbacks) {
			r.say("new", "Failed", "no")
			r.plan("new")
			r.retry()
		}, true, "new"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRollbacks(tc.limit)
				r.plan("old")
				r.say("old", "Running", "")
				r.plan("new")
				tc.act(t, r)
				synctest.Wait()
				if due := r.isDue(); due != tc.due {
					t.Errorf("due: %t, want %t", due, tc.due)
				}
				if got := r.plan("new"); got != tc.want {
					t.Errorf("%q runs, want %q", got, tc.want)
				}
				if _, _, ok := r.standsIn(webAs("new")); ok {
					t.Error("the new definition stands in for itself")
				}
				time.Sleep(10 * limit) // no timer is left of those that have ended
			})
		})
	}
}

// TestRollbackMessage: what is said of a former definition names the cause, once as news; it is read from where the other one is.
func TestRollbackMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRollbacks(time.Minute)
		r.plan("old")
		r.say("old", "Running", "")
		r.plan("new")
		r.say("new", "Starting", "")
		r.say("new", "Waiting", "not ready")
		time.Sleep(2 * time.Minute)
		set := &manifests.Set{Pods: []*v1.Pod{webAs("new")}}
		if r.areDue([]runonce.Result{{Pod: webAs("old")}}) || !r.areDue([]runonce.Result{{Pod: webAs("new")}}) {
			t.Error("the new definition has failed, not the former one")
		}
		r.apply(set)
		if source := set.Pods[0].Annotations[podspec.AnnotationSource]; set.Pods[0].UID != "old" || source != "new" {
			t.Errorf("pod %q of %q", set.Pods[0].UID, source)
		}
		for _, told := range []bool{false, true} {
			failed, _, ok := r.standsIn(set.Pods[0])
			if want := "the new definition has failed: Timeout: it has not reached its goal within 1m0s: not ready; the former one runs"; !ok || failed.message() != want || failed.told != told {
				t.Errorf("%t, %+v, %s", ok, failed, failed.message())
			}
		}
	})
}

// TestDigestFound: which digest an image has been used with, and is then, by what its registry says.
func TestDigestFound(t *testing.T) {
	t.Parallel()
	const none = "none"
	for _, tc := range []struct {
		name  string
		known string // none for an image that was never looked up
		found lookup
		from  string
		then  string
	}{
		{"first", none, lookup{newest: "b", local: "a"}, "", "b"},
		{"first, without an answer", none, lookup{local: "a", err: errors.New("no")}, "", "a"},
		{"first, without anything", none, lookup{err: errors.New("no")}, "", ""},
		{"the same", "a", lookup{newest: "a"}, "", "a"},
		{"another one", "a", lookup{newest: "b"}, "a", "b"},
		{"no answer", "a", lookup{local: "c", err: errors.New("no")}, "", "a"},
		{"by the tag, the same", "", lookup{newest: "a", local: "a"}, "", ""},
		{"by the tag, another one", "", lookup{newest: "b", local: "a"}, "a", "b"},
		{"by the tag, not here yet", "", lookup{newest: "b"}, "", ""},
		{"by the tag, no answer", "", lookup{local: "a", err: errors.New("no")}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := &imageWatch{known: manifests.ImageLock{Images: map[string]string{}}}
			if tc.known != none {
				w.known.Images["x"] = tc.known
			}
			from := w.note("x", tc.found)
			if then, ok := w.known.Images["x"]; from != tc.from || then != tc.then || !ok {
				t.Errorf("from %q to %q, want from %q to %q", from, then, tc.from, tc.then)
			}
		})
	}
}
