package podspec_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// TestEvictionSignal: the signals of the kubelet's metrics.
func TestEvictionSignal(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		fmt.Sprintf(podspec.MessageEmptyDirLimit, "tmp", "1Mi"):   "emptydirfs.limit",
		fmt.Sprintf(podspec.MessagePodLimit, "1Mi"):               "ephemeralpodfs.limit",
		fmt.Sprintf(podspec.MessageContainerLimit, "main", "1Mi"): "ephemeralcontainerfs.limit",
		"The node was low on resource: memory. ":                  "",
	} {
		if got := podspec.EvictionSignal(v1.PodStatus{Phase: v1.PodFailed, Reason: podspec.ReasonEvicted, Message: message}); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
		if got := podspec.EvictionSignal(v1.PodStatus{Phase: v1.PodFailed, Reason: "Error", Message: message}); got != "" {
			t.Errorf("not evicted: %q", got)
		}
	}
}
