package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHostname(t *testing.T) {
	t.Parallel()
	yes, override := true, "other.example"
	for _, tt := range []struct {
		name              string
		pod               string
		spec              v1.PodSpec
		host, domain, uts string
	}{
		{name: "pod's name", pod: "web", host: "web", uts: "web"},
		{name: "hostname", pod: "web", spec: v1.PodSpec{Hostname: "h"}, host: "h", uts: "h"},
		{name: "subdomain", pod: "web", spec: v1.PodSpec{Subdomain: "s"}, host: "web", domain: "s.ns.svc.cluster.local", uts: "web"},
		{
			name: "as FQDN", pod: "web", spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes},
			host: "web", domain: "s.ns.svc.cluster.local", uts: "web.s.ns.svc.cluster.local",
		},
		{name: "as FQDN without subdomain", pod: "web", spec: v1.PodSpec{SetHostnameAsFQDN: &yes}, host: "web", uts: "web"},
		{
			name: "FQDN too long", pod: strings.Repeat("w", 60), spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes},
			host: strings.Repeat("w", 60), domain: "s.ns.svc.cluster.local", uts: strings.Repeat("w", 60) + ".s.ns.svc.cluster.local",
		},
		{name: "cut", pod: strings.Repeat("w", 70), host: strings.Repeat("w", 63), uts: strings.Repeat("w", 63)},
		{name: "cut and trimmed", pod: strings.Repeat("w", 61) + ".-" + "abc", host: strings.Repeat("w", 61), uts: strings.Repeat("w", 61)},
		{
			name: "override", pod: "web", spec: v1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: &override},
			host: "other.example", uts: "other.example",
		},
		{name: "no name", spec: v1.PodSpec{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: tt.pod}, Spec: tt.spec}
			host, domain := Hostname(pod, "cluster.local")
			if uts := KernelHostname(pod, "cluster.local"); host != tt.host || domain != tt.domain || uts != tt.uts {
				t.Errorf("%q, %q, %q", host, domain, uts)
			}
		})
	}
}
