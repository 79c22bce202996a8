package engine

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// Labels that every container carries. The io.kubernetes ones are those of kuberuntime
// (pkg/kubelet/types/labels.go), so that other tools understand them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	LabelStopSignal    = "runonce/stop-signal"
	LabelUser          = "runonce/user"     // v1.LinuxContainerUser as JSON
	LabelPlatform      = "runonce/platform" // Image.Platform, unless it is empty
	// LabelHealthcheck is the readiness probe that the image has given the container, a v1.Probe as JSON.
	LabelHealthcheck = "runonce/healthcheck"
)

// ContainerID names the given instance of a container of a pod that was started at the given time,
// or a pause process that was: readable, and short enough for containerd's limit of 76 characters.
// No ID is used again when a pod is removed and started again: containerd may still report the end
// of the old container, and would forget the new one.
func ContainerID(podUID, name string, start time.Time, attempt int) string {
	return fmt.Sprintf("%s%s-%d", idPrefix(podUID, name), strconv.FormatInt(start.UnixMilli(), 36), attempt)
}

// IsContainer reports whether the ID is that of an instance of the container.
func IsContainer(id, podUID, name string) bool { return strings.HasPrefix(id, idPrefix(podUID, name)) }

func idPrefix(podUID, name string) string {
	h := fnv.New64a()
	h.Write([]byte(podUID + "/" + name))
	return fmt.Sprintf("%.32s-%x-", name, h.Sum64())
}
