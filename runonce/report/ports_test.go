package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestPortVariables(t *testing.T) {
	t.Parallel()
	r := Report{Results: []Result{
		{PodID: PodID{Namespace: "default", Name: "my-web"}, Ports: []Port{
			{ContainerPort: 8080, Protocol: v1.ProtocolTCP, HostPort: 30001}, {Name: "admin-ui", ContainerPort: 9, Protocol: v1.ProtocolTCP, HostIP: "::1", HostPort: 30002},
		}},
		{PodID: PodID{Namespace: "ci", Name: "dns"}, Ports: []Port{{ContainerPort: 53, Protocol: v1.ProtocolUDP, HostIP: "192.0.2.1", HostPort: 30003}}},
		{PodID: PodID{Namespace: "ci", Name: "none"}},
	}}
	var out strings.Builder
	if err := r.PortVariables(&out); err != nil {
		t.Fatal(err)
	}
	const want = `PORT_MY_WEB_8080=30001
ADDRESS_MY_WEB_8080=127.0.0.1:30001
PORT_MY_WEB_ADMIN_UI=30002
ADDRESS_MY_WEB_ADMIN_UI=[::1]:30002
PORT_CI_DNS_53_UDP=30003
ADDRESS_CI_DNS_53_UDP=192.0.2.1:30003
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if got := portCell(r.Results[0].Ports); got != "30001->8080/tcp,[::1]:30002->9/tcp" {
		t.Errorf("cell %q", got)
	}
}
