package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ReasonEvicted is the reason of a pod that has failed because of what it uses.
const ReasonEvicted = "Evicted"

// The messages of evictions because of local storage (pkg/kubelet/eviction/eviction_manager.go): for the name and the
// limit of a volume, the limit of a pod, and the name and the limit of a container.
const (
	MessageEmptyDirLimit  = "Usage of EmptyDir volume %q exceeds the limit %q. "
	MessagePodLimit       = "Pod ephemeral local storage usage exceeds the total limit of containers %s. "
	MessageContainerLimit = "Container %s exceeded its local ephemeral storage limit %q. "
)

// evictionSignals are the signals of the messages in the kubelet's metrics.
var evictionSignals = map[string]string{
	MessageEmptyDirLimit:  "emptydirfs.limit",
	MessagePodLimit:       "ephemeralpodfs.limit",
	MessageContainerLimit: "ephemeralcontainerfs.limit",
}

// EvictionSignal returns the signal for which a pod was evicted, "" if it was not, or if that is not known.
func EvictionSignal(st v1.PodStatus) string {
	if st.Reason != ReasonEvicted {
		return ""
	}
	for message, signal := range evictionSignals {
		if begin, _, _ := strings.Cut(message, "%"); strings.HasPrefix(st.Message, begin) {
			return signal
		}
	}
	return ""
}
