package podstate

import "github.com/runonce/runonce/internal/podspec"

// The kubelet's reasons of pods and waiting containers (pkg/kubelet/container/sync_result.go,
// pkg/kubelet/eviction), besides those of package failure.
const (
	ReasonSandboxLost      = "SandboxLost" // ours
	ReasonCreating         = "ContainerCreating"
	ReasonInitializing     = "PodInitializing"
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	ReasonSandboxError     = "CreatePodSandboxError"
	ReasonPostStartHook    = "PostStartHookError"
	ReasonEvicted          = podspec.ReasonEvicted
)

// What CRI runtimes report for a container that was created and could not be started
// (containerd's internal/cri/server, errorStartReason and errorStartExitCode).
const (
	ReasonStartError   = "StartError"
	StartErrorExitCode = 128
)
