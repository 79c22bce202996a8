package runtime

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/runtime/network"
)

func TestHTTPHook(t *testing.T) {
	t.Parallel()
	var got *http.Request
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(http.StatusTeapot)
	})
	for _, scheme := range []v1.URIScheme{"", v1.URISchemeHTTP, v1.URISchemeHTTPS} {
		server := httptest.NewUnstartedServer(handler)
		if scheme == v1.URISchemeHTTPS {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		pod := aPod(v1.RestartPolicyAlways, ";a")
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "bye", ContainerPort: portOf(t, u)}}
		call := hookCall{pod: pod, c: Container{Name: "a"}, hook: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Path: "/bye", Port: intstr.FromString("bye"), Scheme: scheme, HTTPHeaders: []v1.HTTPHeader{{Name: "X-Why", Value: "stop"}},
		}}}
		// Any status is a success, as in the kubelet.
		if err := httpHook(t.Context(), call, network.Sandbox{IPs: []string{u.Hostname()}}); err != nil {
			t.Errorf("scheme %q: %v", scheme, err)
			continue
		}
		if got.URL.Path != "/bye" || got.Header.Get("X-Why") != "stop" || !strings.HasPrefix(got.UserAgent(), "kube-lifecycle/") {
			t.Errorf("scheme %q: request for %s with %v", scheme, got.URL, got.Header)
		}
	}
}

func TestHookFaults(t *testing.T) {
	t.Parallel()
	pod := aPod(v1.RestartPolicyAlways, ";a")
	call := hookCall{pod: pod, c: Container{Name: "a"}, limit: time.Second}
	call.hook = &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("none")}}
	if err := httpHook(t.Context(), call, network.Sandbox{}); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("unknown port name: %v", err)
	}
	call.hook = &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}
	if err := (&Pods{}).runHook(t.Context(), call); err == nil {
		t.Error("a tcpSocket hook was accepted")
	}
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	tests := map[string]syscall.Signal{
		"": syscall.SIGTERM, "SIGQUIT": syscall.SIGQUIT, "usr1": syscall.SIGUSR1, "9": syscall.SIGKILL, "nonsense": syscall.SIGTERM,
	}
	for name, want := range tests {
		if got := stopSignal(Container{Labels: map[string]string{LabelStopSignal: name}}); got != want {
			t.Errorf("stop signal %q = %v, want %v", name, got, want)
		}
	}
}

func portOf(t *testing.T, u *url.URL) int32 {
	t.Helper()
	n, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}
