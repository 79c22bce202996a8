package engine

import (
	"fmt"
	"hash/fnv"
)

// Labels that every container carries. The io.kubernetes ones are those of kuberuntime
// (pkg/kubelet/types/labels.go), so that other tools understand them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	LabelStopSignal    = "runonce/stop-signal"
	LabelUser          = "runonce/user" // v1.LinuxContainerUser as JSON
)

// ContainerID names the given instance of a container: readable, the same in every run,
// and short enough for containerd's limit of 76 characters.
func ContainerID(podUID, name string, attempt int) string {
	h := fnv.New64a()
	h.Write([]byte(podUID + "/" + name))
	return fmt.Sprintf("%.32s-%x-%d", name, h.Sum64(), attempt)
}
