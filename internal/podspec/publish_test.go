package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestParsePublish(t *testing.T) {
	t.Parallel()
	got, problems := ParsePublish("8080=auto, 53/udp=127.0.0.1:auto,http=[::]:auto,9/SCTP=::1:auto")
	want := []Publish{
		{Port: 8080, Protocol: v1.ProtocolTCP},
		{Port: 53, Protocol: v1.ProtocolUDP, HostIP: "127.0.0.1"},
		{Name: "http", HostIP: "::"},
		{Port: 9, Protocol: v1.ProtocolSCTP, HostIP: "::1"},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
		t.Errorf("%q %s", problems, diff)
	}
	const syntax = "must be PORT[/PROTOCOL]=[ADDRESS:]auto; for a port of your choice, use hostPort"
	for text, want := range map[string]string{
		"":                  `item "": ` + syntax,
		"8080":              `item "8080": ` + syntax,
		"8080=9090":         `item "8080=9090": ` + syntax,
		"=auto":             `item "=auto": must begin with the number of a port, or with its name alone`,
		"http/tcp=auto":     `item "http/tcp=auto": must begin with the number of a port, or with its name alone`,
		"0=auto":            `item "0=auto": port 0: must be between 1 and 65535`,
		"70000=auto":        `item "70000=auto": port 70000: must be between 1 and 65535`,
		"80/icmp=auto":      `item "80/icmp=auto": protocol "icmp": must be tcp, udp or sctp`,
		"80=localhost:auto": `item "80=localhost:auto": "localhost" is no IP address`,
	} {
		if _, problems := ParsePublish(text); !cmp.Equal(problems, []string{want}) {
			t.Errorf("%q: %q, want %q", text, problems, want)
		}
	}
}

func TestPublishedPort(t *testing.T) {
	t.Parallel()
	spec := func() *v1.PodSpec {
		return &v1.PodSpec{Containers: []v1.Container{
			{Name: "a", Ports: []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}},
			{Name: "b", Ports: []v1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: v1.ProtocolUDP}}},
		}}
	}
	for _, c := range []struct {
		name    string
		publish Publish
		host    bool
		want    v1.ContainerPort
		problem string
	}{
		{name: "declared", publish: Publish{Port: 80, Protocol: v1.ProtocolTCP}, want: v1.ContainerPort{ContainerPort: 80}},
		{name: "by name", publish: Publish{Name: "dns"}, want: v1.ContainerPort{Name: "dns", ContainerPort: 53, Protocol: v1.ProtocolUDP}},
		{name: "not declared", publish: Publish{Port: 53, Protocol: v1.ProtocolTCP}, want: v1.ContainerPort{ContainerPort: 53, Protocol: v1.ProtocolTCP}},
		{name: "unknown name", publish: Publish{Name: "http"}, problem: `no container has a port with the name "http"`},
		{name: "has a hostPort", publish: Publish{Port: 81, Protocol: v1.ProtocolTCP}, problem: `port 81 of container "a" has a hostPort or is published twice`},
		{name: "host network", publish: Publish{Port: 80, Protocol: v1.ProtocolTCP}, host: true, problem: "a pod on the host's network listens on the machine itself: it has no ports to publish"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := spec()
			s.HostNetwork = c.host
			port, problem := PublishedPort(s, c.publish)
			if problem != c.problem {
				t.Fatalf("%q, want %q", problem, c.problem)
			}
			if problem != "" {
				return
			}
			if diff := cmp.Diff(c.want, *port); diff != "" {
				t.Error(diff)
			}
			port.HostPort = 7
			if all := HostPorts(&v1.Pod{Spec: *s}); len(all) != 2 {
				t.Errorf("the spec has not got the port: %v", all)
			}
		})
	}
}
