package podstate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxMessages bounds the termination messages of a pod together, in bytes
// (MaxPodTerminationMessageLogLength of pkg/kubelet/container).
const maxMessages = 12 << 10

// shorten gives each container of the pod its share of what messages may take
// (normalizeStatus of pkg/kubelet/status).
func shorten(groups ...[]v1.ContainerStatus) {
	n := 0
	for _, g := range groups {
		n += len(g)
	}
	for _, g := range groups {
		for i := range g {
			for _, t := range []*v1.ContainerStateTerminated{g[i].State.Terminated, g[i].LastTerminationState.Terminated} {
				if most := maxMessages / n; t != nil && len(t.Message) > most {
					t.Message = strings.ToValidUTF8(t.Message[:most], "")
				}
			}
		}
	}
}
