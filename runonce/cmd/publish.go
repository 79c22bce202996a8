package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// portTries is how many free ports are looked at before one is that no pod has either.
const portTries = 100

// publish gives the pods that ask for free ports of the machine those that they have had, or other ones.
func (c *console) publish(ctx context.Context, pods []*v1.Pod, present admit.Present) error {
	known := slices.Concat(present.Running, present.Reserved)
	taken := map[string]bool{}
	for _, pod := range slices.Concat(known, pods) {
		for _, p := range podspec.HostPorts(pod) {
			taken[portKey(p)] = true
		}
	}
	for _, pod := range pods {
		wanted, _ := podspec.ParsePublish(pod.Annotations[podspec.AnnotationPublish]) // which was checked
		for _, w := range wanted {
			port, problem := podspec.PublishedPort(&pod.Spec, w)
			if problem != "" {
				continue // it has one: this is not the first plan of the set
			}
			port.HostIP = w.HostIP
			if port.HostPort = formerPort(known, pod, port); port.HostPort != 0 {
				continue
			}
			var err error
			if port.HostPort, err = c.freePort(ctx, *port, taken); err != nil {
				return unusable(fmt.Errorf("looking for a free port for port %d of pod %q: %w", port.ContainerPort, pod.Name, err))
			}
		}
	}
	return nil
}

// formerPort returns the port of the machine that the pod, or its former version, has for this one, 0 for none.
func formerPort(known []*v1.Pod, pod *v1.Pod, port *v1.ContainerPort) int32 {
	for _, k := range known {
		if podspec.NameOf(k) != podspec.NameOf(pod) || k.Annotations[podspec.AnnotationPublish] == "" {
			continue
		}
		for _, p := range podspec.HostPorts(k) {
			if p.ContainerPort == port.ContainerPort && protocolOf(p) == protocolOf(*port) && p.HostIP == port.HostIP {
				return p.HostPort
			}
		}
	}
	return 0
}

// freePort returns a port on which nobody listens and that no pod has, and takes it.
func (c *console) freePort(ctx context.Context, port v1.ContainerPort, taken map[string]bool) (int32, error) {
	for range portTries {
		n, err := c.io.FreePort(ctx, protocolOf(port), port.HostIP)
		if err != nil {
			return 0, err
		}
		port.HostPort = n
		if key := portKey(port); !taken[key] {
			taken[key] = true
			return n, nil
		}
	}
	return 0, fmt.Errorf("pods have all %d ports that are free", portTries)
}

// portKey is the same for ports of which a pod can have only one, whatever their addresses.
func portKey(p v1.ContainerPort) string {
	return fmt.Sprintf("%d/%s", p.HostPort, protocolOf(p))
}

func protocolOf(p v1.ContainerPort) v1.Protocol { return cmp.Or(p.Protocol, v1.ProtocolTCP) }
