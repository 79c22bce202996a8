package runtime

import (
	"context"
	"strings"
	"testing"

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
