package podstate

import (
	"strings"
	"syscall"

	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// StopSignalName is the signal that the container is to be stopped by: its own, else its
// image's, "" when neither names one (pkg/kubelet/kuberuntime.getContainerConfigStopSignal).
func StopSignalName(c *v1.Container, img engine.Image) string {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		return string(*c.Lifecycle.StopSignal)
	}
	return img.StopSignal
}

// StopSignal is the one that the container was started with, SIGTERM if it has none.
func StopSignal(c engine.Container) syscall.Signal {
	sig, err := signal.ParseSignal(c.Labels[engine.LabelStopSignal])
	if err != nil || !signal.ValidSignalForPlatform(sig) {
		return syscall.SIGTERM
	}
	return sig
}

// effectiveStopSignal is StopSignal in the form of a container's status: SIGTERM, SIGRTMIN+3,
// SIGRTMAX-14.
func effectiveStopSignal(c engine.Container) *v1.Signal {
	sig := StopSignal(c)
	name := unix.SignalName(sig)
	for short, s := range signal.SignalMap {
		if s == sig && strings.HasPrefix(short, "RT") {
			name = "SIG" + short
		}
	}
	return new(v1.Signal(name))
}
