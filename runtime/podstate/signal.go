package podstate

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// The real-time signals, as C libraries number them: they reserve the kernel's first two.
const (
	realtimeMin = 34
	realtimeMax = 64
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
	if sig := signalNumber(c.Labels[engine.LabelStopSignal]); sig != 0 {
		return sig
	}
	return syscall.SIGTERM
}

// effectiveStopSignal is StopSignal in the form of a container's status.
func effectiveStopSignal(c engine.Container) *v1.Signal {
	name := v1.Signal(signalName(StopSignal(c)))
	return &name
}

// signalNumber understands "SIGTERM", "TERM", "15" and "SIGRTMIN+3"; it is 0 for anything
// else.
func signalNumber(name string) syscall.Signal {
	if n, err := strconv.Atoi(name); err == nil {
		return inRange(n, 1)
	}
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if rest, ok := strings.CutPrefix(name, "RTMIN"); ok {
		return realtime(realtimeMin, rest, '+')
	}
	if rest, ok := strings.CutPrefix(name, "RTMAX"); ok {
		return realtime(realtimeMax, rest, '-')
	}
	switch name {
	case "CLD":
		return syscall.SIGCHLD
	case "IOT":
		return syscall.SIGIOT
	case "POLL":
		return syscall.SIGPOLL
	}
	return unix.SignalNum("SIG" + name)
}

// realtime is the signal at an offset from base, which begins with sign or is empty.
func realtime(base int, offset string, sign byte) syscall.Signal {
	if offset == "" {
		return syscall.Signal(base)
	}
	n, err := strconv.Atoi(offset)
	if err != nil || offset[0] != sign {
		return 0
	}
	return inRange(base+n, realtimeMin)
}

func inRange(n, least int) syscall.Signal {
	if n < least || n > realtimeMax {
		return 0
	}
	return syscall.Signal(n)
}

// signalName names a signal as Kubernetes does: SIGTERM, SIGRTMIN+3, SIGRTMAX-14.
func signalName(sig syscall.Signal) string {
	const half = realtimeMin + 15 // the last one that is counted from the first
	n := int(sig)
	switch {
	case n == realtimeMin:
		return "SIGRTMIN"
	case n == realtimeMax:
		return "SIGRTMAX"
	case n > realtimeMin && n <= half:
		return "SIGRTMIN+" + strconv.Itoa(n-realtimeMin)
	case n > half && n < realtimeMax:
		return "SIGRTMAX-" + strconv.Itoa(realtimeMax-n)
	}
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return strconv.Itoa(n) // one of the C library's
}
