package network

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/failure"
)

// TestHostname: a name that the kernel does not take is an error for good.
func TestHostname(t *testing.T) {
	t.Parallel()
	yes, long := true, strings.Repeat("x", 65)
	for _, tt := range []struct {
		name, pod    string
		spec         v1.PodSpec
		want, domain string
		err          string
	}{
		{"pod's name", "web", v1.PodSpec{}, "web", "", ""},
		{"as FQDN", "web", v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, "web.s.ns.svc.cluster.local", "s.ns.svc.cluster.local", ""},
		{"FQDN too long", strings.Repeat("w", 60), v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: &yes}, "", "", "64 characters is the max, 83 characters requested"},
		{"override too long", "web", v1.PodSpec{HostnameOverride: &long}, "", "", "must have 1 to 64 characters"},
		{"no override", "web", v1.PodSpec{HostnameOverride: new("")}, "", "", "must have 1 to 64 characters"},
		{"no name", "", v1.PodSpec{}, "", "", "no host name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: tt.pod}, Spec: tt.spec}
			got, domain, err := podHostname(pod, "cluster.local")
			if got != tt.want || domain != tt.domain || (err == nil) != (tt.err == "") {
				t.Errorf("%q, %q, %v", got, domain, err)
			}
			if err != nil && (!failure.IsPermanent(err) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %s, for good", err, tt.err)
			}
		})
	}
}
