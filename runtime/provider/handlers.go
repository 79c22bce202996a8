package provider

import (
	"context"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// idleTimeout is how long a connection with streams may have nothing to say, as in the kubelet
// (streamingConnectionIdleTimeout).
const idleTimeout = 4 * time.Hour

// target is the container that a request is about.
type target struct{ namespace, pod, container string }

// Handlers returns what api.PodHandler needs to serve the API server: logs, commands, connections and
// metrics. assigned lists the pods that the cluster has assigned to the node.
func (p *Provider) Handlers(assigned api.PodListerFunc) api.PodHandlerConfig {
	return api.PodHandlerConfig{
		RunInContainer: func(ctx context.Context, namespace, pod, container string, command []string, a api.AttachIO) error {
			return p.runInContainer(ctx, target{namespace, pod, container}, command, a)
		},
		AttachToContainer:     p.AttachToContainer,
		PortForward:           p.PortForward,
		GetContainerLogs:      p.GetContainerLogs,
		GetPods:               p.runningPods,
		GetPodsFromKubernetes: assigned,
		GetStatsSummary:       p.GetStatsSummary,
		GetMetricsResource:    p.GetMetricsResource,
		StreamIdleTimeout:     idleTimeout,
		StreamCreationTimeout: idleTimeout, // virtual-kubelet takes it for the other one of port-forward
	}
}

// runningPods returns the pods with a container that runs, as the kubelet does.
func (p *Provider) runningPods(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := p.GetPods(ctx)
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		return !slices.ContainsFunc(podspec.AllStatuses(pod.Status), func(cs v1.ContainerStatus) bool { return cs.State.Running != nil })
	}), err
}
