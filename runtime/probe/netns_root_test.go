package probe

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/network/namespaces"
)

// A pod's loopback is its own: only from inside does a server on it answer.
func TestFromInside(t *testing.T) {
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "ns")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := namespaces.Make(dir, []namespaces.Kind{namespaces.Net}, ""); err != nil {
		t.Fatal(err)
	}
	pin := namespaces.Pin{Kind: namespaces.Net, Path: filepath.Join(dir, "net")}
	var l net.Listener
	err := namespaces.Inside([]namespaces.Pin{pin}, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	host, port := portOf(t, l.Addr().String())
	for _, name := range []string{"", "localhost"} {
		p := &v1.Probe{TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: name, Port: intstr.FromInt32(int32(port))}}}
		wantOutcome(t, Check(t.Context(), Target{IP: host, NetNS: pin.Path, Container: &v1.Container{}}, p), Success, "")
		wantOutcome(t, Check(t.Context(), Target{IP: host, Container: &v1.Container{}}, p), Failure, "connection refused")
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	hook := &v1.HTTPGetAction{Port: intstr.FromInt32(int32(port))}
	if err := (Target{IP: host, NetNS: pin.Path, Container: &v1.Container{}}).Hook(t.Context(), hook); err != nil {
		t.Errorf("a hook from inside: %v", err)
	}
	if err := (Target{IP: host, Container: &v1.Container{}}).Hook(t.Context(), hook); err == nil {
		t.Error("a hook from outside reached the server")
	}
}
