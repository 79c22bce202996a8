package runtime

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

func onePod() *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
}

// An HTTP hook is sent from inside the pod's network namespace.
func TestHTTPHookFromInside(t *testing.T) {
	t.Parallel()
	hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}
	p := &Pods{o: Options{Sandboxes: oneSandbox{engine.Sandbox{NetNS: "/no/such/ns", IPs: []string{"127.0.0.1"}}}}}
	if err := p.runHook(t.Context(), onePod(), engine.Container{Name: "a"}, hook); err == nil || !strings.Contains(err.Error(), "opening namespace /no/such/ns") {
		t.Errorf("%v, want a failure to enter the pod's namespace", err)
	}
}

// oneSandbox is that of every pod.
type oneSandbox struct{ box engine.Sandbox }

func (s oneSandbox) Ensure(context.Context, *v1.Pod, record.Lock) (engine.Sandbox, error) {
	return s.box, nil
}
func (s oneSandbox) Get(context.Context, *v1.Pod) (engine.Sandbox, error) { return s.box, nil }
func (s oneSandbox) Remove(context.Context, *v1.Pod, record.Lock) error   { return nil }

func TestUnsupportedHook(t *testing.T) {
	t.Parallel()
	hook := &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}
	if err := (&Pods{}).runHook(t.Context(), onePod(), engine.Container{Name: "a"}, hook); err == nil {
		t.Error("a tcpSocket hook was accepted")
	}
}

// TestSleepHook: a hook that is cut off has failed. One that sleeps for all of the grace period, which
// ends a moment earlier, has not.
func TestSleepHook(t *testing.T) {
	t.Parallel()
	const cutOff = `Sleep lifecycle hook (10) for Container "a" in Pod "a_x(1)" failed - error: container terminated before sleep hook finished`
	hook := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 10}}
	pod := onePod()
	pod.Name, pod.Namespace, pod.UID = "a", "x", "1"
	for name, tt := range map[string]struct {
		limit, took time.Duration
		want        string
	}{
		"in time":              {limit: 11 * time.Second, took: 10 * time.Second},
		"the whole time":       {limit: 10 * time.Second, took: 10 * time.Second},
		"a moment less":        {limit: 10*time.Second - time.Millisecond, took: 10*time.Second - time.Millisecond},
		"cut off":              {limit: 9 * time.Second, took: 9 * time.Second, want: cutOff},
		"cut off at the start": {want: cutOff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				begin, got := time.Now(), ""
				if err := (&Pods{}).runHook(ctx, pod, engine.Container{Name: "a"}, hook); err != nil {
					got = err.Error()
				}
				if took := time.Since(begin); got != tt.want || took != tt.took {
					t.Errorf("%q after %s, want %q after %s", got, took, tt.want, tt.took)
				}
			})
		})
	}
}
