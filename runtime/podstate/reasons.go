package podstate

// The reasons of a pod and of containers that wait, in the kubelet's words
// (pkg/kubelet/container/sync_result.go, pkg/kubelet/eviction), beside those of package
// failure.
const (
	ReasonCreating         = "ContainerCreating"
	ReasonInitializing     = "PodInitializing"
	ReasonCrashLoopBackOff = "CrashLoopBackOff"
	ReasonSandboxError     = "CreatePodSandboxError"
	ReasonPostStartHook    = "PostStartHookError"
	ReasonEvicted          = "Evicted"
)

// What CRI runtimes say of a container that was created and could not be started
// (containerd's internal/cri/server, errorStartReason and errorStartExitCode).
const (
	ReasonStartError   = "StartError"
	StartErrorExitCode = 128
)
