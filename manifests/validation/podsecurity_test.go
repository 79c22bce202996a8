package validation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParseLevel(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "privileged:latest", "baseline": "baseline:latest", "restricted:v1.30": "restricted:v1.30", "privileged:latest": "privileged:latest",
	} {
		if l, err := parseLevel(in); err != nil || l.String() != want {
			t.Errorf("%q: %s, %v", in, l.String(), err)
		}
	}
	for in, want := range map[string]string{
		"strict":       `pod security "strict": must be one of privileged, baseline, restricted`,
		"baseline:1.2": `pod security "baseline:1.2": version must be "latest" or "v1.x"`,
	} {
		if _, err := parseLevel(in); err == nil || err.Error() != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestPodSecurity(t *testing.T) {
	t.Parallel()
	const hostNetwork = `host namespaces (hostNetwork=true)`
	for _, tt := range []struct {
		name, minimum   string
		labels          map[string]string
		pod             v1.PodSpec
		refused, warned string
	}{
		{name: "nothing asked", pod: v1.PodSpec{HostNetwork: true}},
		{name: "minimum", minimum: "baseline", pod: v1.PodSpec{HostNetwork: true}, refused: `violates PodSecurity "baseline:latest": ` + hostNetwork},
		{name: "minimum kept", minimum: "baseline", pod: v1.PodSpec{}},
		{
			name: "namespace asks for more", minimum: "privileged", labels: map[string]string{"enforce": "baseline", "enforce-version": "v1.29"},
			pod: v1.PodSpec{HostNetwork: true}, refused: `violates PodSecurity "baseline:v1.29": ` + hostNetwork,
		},
		{
			name: "namespace cannot ask for less", minimum: "baseline", labels: map[string]string{"enforce": "privileged"},
			pod: v1.PodSpec{HostNetwork: true}, refused: `violates PodSecurity "baseline:latest": ` + hostNetwork,
		},
		{
			name: "namespace warns", labels: map[string]string{"warn": "baseline"},
			pod: v1.PodSpec{HostNetwork: true}, warned: `would violate PodSecurity "baseline:latest": ` + hostNetwork,
		},
		{name: "audit means nothing here", labels: map[string]string{"audit": "restricted"}, pod: v1.PodSpec{HostNetwork: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := New(tt.minimum, v1.NamespaceDefault)
			if err != nil {
				t.Fatal(err)
			}
			ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"app": "x"}}}
			for k, v := range tt.labels {
				ns.Labels["pod-security.kubernetes.io/"+k] = v
			}
			if found, errs := r.Namespace(ns); found != (len(tt.labels) > 0) || len(errs) > 0 {
				t.Fatalf("found %t, %v", found, errs)
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tt.pod}
			if refused, warned := r.PodSecurity(pod); refused != tt.refused || warned != tt.warned {
				t.Errorf("refused %q, warned %q", refused, warned)
			}
			pod.Namespace = "other"
			if refused, warned := r.PodSecurity(pod); tt.minimum == "" && refused+warned != "" {
				t.Errorf("in another namespace: refused %q, warned %q", refused, warned)
			}
		})
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	container := func(s v1.SecurityContext) v1.PodSpec {
		return v1.PodSpec{Containers: []v1.Container{{Name: "main", SecurityContext: &s}}}
	}
	const violates = `violates PodSecurity "baseline:latest": `
	for _, tt := range []struct {
		pod  v1.PodSpec
		want string
	}{
		{pod: container(v1.SecurityContext{RunAsUser: new(int64(0))})},
		{pod: container(v1.SecurityContext{Privileged: new(true)}), want: violates + `privileged (container "main" must not set securityContext.privileged=true)`},
		{pod: v1.PodSpec{HostPID: true, HostIPC: true}, want: violates + "host namespaces (hostPID=true, hostIPC=true)"},
		{
			pod:  v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}}}},
			want: violates + `hostPath volumes (volume "data")`,
		},
		{
			pod:  container(v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_ADMIN"}}}),
			want: violates + `non-default capabilities (container "main" must not include "SYS_ADMIN" in securityContext.capabilities.add)`,
		},
	} {
		if got := Exposure(&v1.Pod{Spec: tt.pod}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
