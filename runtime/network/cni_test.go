package network

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/testing/exectest"
)

func TestPodIPs(t *testing.T) {
	t.Parallel()
	ip := func(s string, iface *int) *types100.IPConfig {
		return &types100.IPConfig{Address: net.IPNet{IP: net.ParseIP(s), Mask: net.CIDRMask(24, 32)}, Interface: iface}
	}
	host, pod, wrong := 0, 1, 7
	got := podIPs(&types100.Result{
		Interfaces: []*types100.Interface{{Name: "br"}, {Name: "eth0", Sandbox: "/run/ns"}},
		IPs:        []*types100.IPConfig{ip("10.0.0.1", &host), ip("10.0.0.2", &pod), ip("fd00::2", nil), ip("10.0.0.3", &wrong)},
	})
	if diff := cmp.Diff([]string{"10.0.0.2", "fd00::2", "10.0.0.3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		in    error
		final bool
	}{
		{"other", errors.New("x"), false},
		{"unknown", types.NewError(types.ErrUnknown, "x", ""), false},
		{"try again", types.NewError(types.ErrTryAgainLater, "x", ""), false},
		{"configuration", types.NewError(types.ErrInvalidNetworkConfig, "x", ""), true},
		{"full disk", types.NewError(types.ErrInternal, "failed to allocate for range 0: write /run/ip: no space left on device", ""), true},
		{"version", types.NewError(types.ErrIncompatibleCNIVersion, "x", ""), true},
	} {
		if err := classify(tt.in); failure.IsPermanent(err) != tt.final || !errors.Is(err, tt.in) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestHostPorts(t *testing.T) {
	t.Parallel()
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Ports: []v1.ContainerPort{{HostPort: 1, ContainerPort: 1}}},
			{RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 53, ContainerPort: 5353, Protocol: v1.ProtocolUDP}}},
		},
		Containers: []v1.Container{
			{Ports: []v1.ContainerPort{{ContainerPort: 1}, {HostPort: 80, ContainerPort: 8080, HostIP: "127.0.0.1"}}},
			{Ports: []v1.ContainerPort{{HostPort: 53, ContainerPort: 5353, Protocol: v1.ProtocolUDP}, {HostPort: 9, ContainerPort: 9, Protocol: v1.ProtocolSCTP}}},
		},
	}}
	want := []portMapping{{53, 5353, "udp", ""}, {80, 8080, "tcp", "127.0.0.1"}, {9, 9, "sctp", ""}}
	if diff := cmp.Diff(want, hostPorts(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, out string
		want          *bandwidthLimits
		wantErr       string
	}{
		{name: "none"},
		{name: "in", in: "1M", want: &bandwidthLimits{IngressRate: 1e6, IngressBurst: 1<<32 - 1}},
		{name: "both", in: "10k", out: "1Gi", want: &bandwidthLimits{IngressRate: 1e4, IngressBurst: 1<<32 - 1, EgressRate: 1 << 30, EgressBurst: 1<<32 - 1}},
		{name: "too small", out: "10", wantErr: "between 1k and 1P"},
		{name: "too large", out: "2P", wantErr: "between 1k and 1P"},
		{name: "not a number", in: "fast", wantErr: "kubernetes.io/ingress-bandwidth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
			if tt.in != "" {
				pod.Annotations[ingressAnnotation] = tt.in
			}
			if tt.out != "" {
				pod.Annotations[egressAnnotation] = tt.out
			}
			got, err := capabilitiesOf(pod)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(capabilities{Bandwidth: tt.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSelections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     []selection
		wantErr  string
	}{
		{name: "none"},
		{name: "space", in: " "},
		{name: "names", in: "a, ns/b@data0 ,c", want: []selection{
			{Name: "a", Interface: "net1"}, {Name: "b", Namespace: "ns", Interface: "data0"}, {Name: "c", Interface: "net3"},
		}},
		{name: "JSON", in: ` [{"name":"a"},{"name":"b","namespace":"ns","interface":"data0","ips":["10.1.2.3/24"],"mac":"02:00:00:00:00:01"}]`, want: []selection{
			{Name: "a", Interface: "net1"}, {Name: "b", Namespace: "ns", Interface: "data0", IPs: []string{"10.1.2.3/24"}, MAC: "02:00:00:00:00:01"},
		}},
		{name: "twice", in: "a,a", want: []selection{{Name: "a", Interface: "net1"}, {Name: "a", Interface: "net2"}}},
		{name: "empty list", in: "[]", want: []selection{}},
		{name: "unknown key", in: `[{"name":"a","default-route":["10.0.0.1"]}]`, wantErr: `unknown field "default-route"`},
		{name: "no list", in: `[{"name":"a"}`, wantErr: "unexpected EOF"},
		{name: "two lists", in: `[{"name":"a"}][]`, wantErr: "text after the list"},
		{name: "no name", in: "a,,b", wantErr: "network 2 has no name"},
		{name: "no interface", in: "a@", wantErr: "no interface"},
		{name: "many slashes", in: "a/b/c", wantErr: "NAMESPACE"},
		{name: "long interface", in: "a@interface-of-sixteen", wantErr: "is not a valid interface name"},
		{name: "the first interface", in: "a@eth0", wantErr: `"eth0" is already used`},
		{name: "same interface", in: "a@x,b@x", wantErr: `"x" is already used`},
		{name: "same as a default", in: "a@net2,b", wantErr: `"net2" is already used`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := selectionsOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{networksAnnotation: tt.in}}})
			if tt.wantErr != "" {
				if !failure.IsPermanent(err) || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), networksAnnotation) {
					t.Errorf("error %v, want a permanent one with %q", err, tt.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func FuzzSelections(f *testing.F) {
	f.Add("a, ns/b@data0 ,c")
	f.Add(`[{"name":"a","interface":"net2"},{"name":"b"}]`)
	f.Fuzz(func(t *testing.T, in string) {
		all, err := selectionsOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{networksAnnotation: in}}})
		if err != nil {
			if !failure.IsPermanent(err) {
				t.Errorf("%q: error %v is not permanent", in, err)
			}
			return
		}
		seen := map[string]bool{podInterface: true}
		for _, s := range all {
			if s.Name == "" || s.Interface == "" || len(s.Interface) > 15 || seen[s.Interface] {
				t.Errorf("%q: %+v", in, all)
			}
			seen[s.Interface] = true
		}
	})
}

// A plugin that hangs is killed with what it has started, which would keep the lock otherwise.
func TestHangingPluginIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin, path := filepath.Join(dir, "hangs"), filepath.Join(dir, "lock")
	exectest.Write(t, plugin, "#!/bin/sh\nsleep 600 &\nwait\n")
	lock, err := flock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	e := &pluginExec{inherit: []*os.File{lock}, limit: 100 * time.Millisecond}
	if _, err := e.ExecPlugin(t.Context(), plugin, nil, nil); err == nil || !strings.Contains(err.Error(), "it did not finish within 100ms") {
		t.Errorf("error %v, want the limit", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, context.Canceled)
	defer cancel()
	e.limit = time.Hour
	if _, err := e.ExecPlugin(ctx, plugin, nil, nil); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error %v, want that of the caller", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	free, err := flock.Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Error(err)
	}
}

// The portmap plugin needs time for each port.
func TestLimitOf(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	if got := m.limitOf(podNetwork{}); got != 20*time.Second {
		t.Errorf("%s without ports", got)
	}
	if got := m.limitOf(podNetwork{Asked: capabilities{Ports: make([]portMapping, 1000)}}); got < 2*time.Minute {
		t.Errorf("%s for 1000 ports", got)
	}
}
