package report

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Port is a port of the machine that leads to a container.
type Port struct {
	Name          string      `json:"name,omitempty"` // of the container's port
	ContainerPort int32       `json:"containerPort"`
	Protocol      v1.Protocol `json:"protocol"`
	HostIP        string      `json:"hostIP,omitempty"` // empty for all addresses of the machine
	HostPort      int32       `json:"hostPort"`
}

// portsOf returns the ports of the machine that the pod has, if it runs.
func portsOf(pod *v1.Pod, status v1.PodStatus) []Port {
	if status.Phase != v1.PodRunning {
		return nil
	}
	var all []Port
	for _, p := range podspec.HostPorts(pod) {
		all = append(all, Port{p.Name, p.ContainerPort, cmp.Or(p.Protocol, v1.ProtocolTCP), p.HostIP, p.HostPort})
	}
	return all
}

// portCell returns the ports for a table, as docker prints them.
func portCell(ports []Port) string {
	cells := make([]string, 0, len(ports))
	for _, p := range ports {
		host := strconv.Itoa(int(p.HostPort))
		if p.HostIP != "" {
			host = net.JoinHostPort(p.HostIP, host)
		}
		cells = append(cells, fmt.Sprintf("%s->%d/%s", host, p.ContainerPort, strings.ToLower(string(p.Protocol))))
	}
	return strings.Join(cells, ",")
}

// PortVariables writes the ports of the machine that lead to the pods as variables, PORT_POD_PORT and ADDRESS_POD_PORT, for the
// next step of a job.
func (r Report) PortVariables(w io.Writer) error {
	var text strings.Builder
	for i := range r.Results {
		for _, p := range r.Results[i].Ports {
			name := variableName(&r.Results[i], p)
			fmt.Fprintf(&text, "PORT_%s=%d\nADDRESS_%s=%s\n", name, p.HostPort, name, net.JoinHostPort(reachable(p.HostIP), strconv.Itoa(int(p.HostPort))))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// variableName names a port of a pod: POD_PORT, with the namespace in front unless it is the default one, and the protocol after it
// unless it is TCP.
func variableName(r *Result, p Port) string {
	words := []string{r.Name, cmp.Or(p.Name, strconv.Itoa(int(p.ContainerPort)))}
	if r.Namespace != v1.NamespaceDefault {
		words = slices.Insert(words, 0, r.Namespace)
	}
	if p.Protocol != v1.ProtocolTCP {
		words = append(words, string(p.Protocol))
	}
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(strings.Join(words, "_")))
}

// reachable returns an address of this machine at which a port is reached that has this one.
func reachable(hostIP string) string {
	switch hostIP {
	case "", "0.0.0.0":
		return "127.0.0.1"
	case "::":
		return "::1"
	}
	return hostIP
}
