package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestServiceFamilies: what of an API server's allocation does not depend on the cluster.
func TestServiceFamilies(t *testing.T) {
	t.Parallel()
	rules, err := New("", "default")
	if err != nil {
		t.Fatal(err)
	}
	single, prefer, dual := v1.IPFamilyPolicySingleStack, v1.IPFamilyPolicyPreferDualStack, v1.IPFamilyPolicyRequireDualStack
	ports, selector := []v1.ServicePort{{Port: 80}}, map[string]string{"a": "b"}
	for _, tt := range []struct {
		name     string
		in       v1.ServiceSpec
		policy   *v1.IPFamilyPolicy
		families []v1.IPFamily
		ips      []string
		err      string
	}{
		{name: "nothing given", in: v1.ServiceSpec{Ports: ports, Selector: selector}, policy: &single},
		{
			name: "singular address", in: v1.ServiceSpec{Ports: ports, Selector: selector, ClusterIP: "fd00::1"},
			policy: &single, families: []v1.IPFamily{v1.IPv6Protocol}, ips: []string{"fd00::1"},
		},
		{
			name: "the second family follows from the address", in: v1.ServiceSpec{
				Ports: ports, Selector: selector, ClusterIP: "fd00::1", ClusterIPs: []string{"fd00::1", "10.0.0.1"},
				IPFamilyPolicy: &prefer, IPFamilies: []v1.IPFamily{v1.IPv6Protocol},
			},
			policy: &prefer, families: []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}, ips: []string{"fd00::1", "10.0.0.1"},
		},
		{
			name: "more families than addresses", in: v1.ServiceSpec{
				Ports: ports, Selector: selector, ClusterIP: "10.0.0.1", IPFamilyPolicy: &dual, IPFamilies: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol},
			},
			policy: &dual, families: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, ips: []string{"10.0.0.1"},
		},
		{name: "headless", in: v1.ServiceSpec{Selector: selector, ClusterIP: "None"}, policy: &single, ips: []string{"None"}},
		{name: "headless without a selector", in: v1.ServiceSpec{ClusterIP: "None"}, policy: &dual, ips: []string{"None"}},
		{name: "external name", in: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "example.com"}},
		{
			name: "two families and one stack", in: v1.ServiceSpec{Ports: ports, IPFamilies: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}},
			families: []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol},
			err:      `spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified`,
		},
		{
			name: "a health check of a load balancer", in: v1.ServiceSpec{Ports: ports, Type: v1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyLocal},
			policy: &single,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &v1.Service{Spec: tt.in}
			s.Name = "s"
			got := ""
			if errs := rules.Object(s); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tt.err || s.Spec.HealthCheckNodePort != 0 {
				t.Errorf("error %q, want %q; health check %d", got, tt.err, s.Spec.HealthCheckNodePort)
			}
			if d := cmp.Diff(tt.policy, s.Spec.IPFamilyPolicy) + cmp.Diff(tt.families, s.Spec.IPFamilies) + cmp.Diff(tt.ips, s.Spec.ClusterIPs); d != "" {
				t.Error(d)
			}
		})
	}
}
