package network

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
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
		{"version", types.NewError(types.ErrIncompatibleCNIVersion, "x", ""), true},
	} {
		err := podError(&v1.Pod{}, "testing", classify(tt.in))
		var e *Error
		if !errors.As(err, &e) || e.Permanent() != tt.final || !errors.Is(err, tt.in) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestHostPorts(t *testing.T) {
	t.Parallel()
	pod := newPod("a", func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{
			{Ports: []v1.ContainerPort{{HostPort: 1, ContainerPort: 1}}},
			{RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 53, ContainerPort: 5353, Protocol: v1.ProtocolUDP}}},
		}
		p.Spec.Containers = []v1.Container{
			{Ports: []v1.ContainerPort{{ContainerPort: 1}, {HostPort: 80, ContainerPort: 8080, HostIP: "127.0.0.1"}}},
			{Ports: []v1.ContainerPort{{HostPort: 53, ContainerPort: 5353, Protocol: v1.ProtocolUDP}, {HostPort: 9, ContainerPort: 9, Protocol: v1.ProtocolSCTP}}},
		}
	})
	want := []portMapping{{53, 5353, "udp", ""}, {80, 8080, "tcp", "127.0.0.1"}, {9, 9, "sctp", ""}}
	if diff := cmp.Diff(want, hostPorts(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestPodUID(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"0a-b_c.D": true, "": false, "../x": false, "a/b": false, ".a": false, "-a": false, "a b": false, "a\x00": false,
		strings.Repeat("a", 40): true,
	} {
		pod := newPod("a")
		pod.UID = apitypes.UID(in)
		_, err := podUID(pod)
		var e *Error
		if (err == nil) != ok || err != nil && (!errors.As(err, &e) || !e.Permanent()) {
			t.Errorf("podUID(%q): error %v", in, err)
		}
	}
}

func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, out string
		want          *bandwidth
		fault         string
	}{
		{name: "none"},
		{name: "in", in: "1M", want: &bandwidth{IngressRate: 1e6, IngressBurst: 1<<32 - 1}},
		{name: "both", in: "10k", out: "1Gi", want: &bandwidth{IngressRate: 1e4, IngressBurst: 1<<32 - 1, EgressRate: 1 << 30, EgressBurst: 1<<32 - 1}},
		{name: "too small", out: "10", fault: "between 1k and 1P"},
		{name: "too large", out: "2P", fault: "between 1k and 1P"},
		{name: "not a number", in: "fast", fault: "kubernetes.io/ingress-bandwidth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := newPod("a", func(p *v1.Pod) { p.Annotations = map[string]string{} })
			if tt.in != "" {
				pod.Annotations[ingressAnnotation] = tt.in
			}
			if tt.out != "" {
				pod.Annotations[egressAnnotation] = tt.out
			}
			got, err := capabilitiesOf(pod)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("error %v, want one with %q", err, tt.fault)
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
