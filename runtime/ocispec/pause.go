package ocispec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// pauseScore is the oom_score_adj of a pod's sandbox (containerd's defaultSandboxOOMAdj):
// with it the whole pod would end.
const pauseScore = -998

// Pause returns the spec of the process that holds the pod's process namespace. It is run
// as the pod's user, as the sandbox of a CRI runtime is, and with no capability: it only
// waits and reaps. Its program is the engine's. in.Container is not looked at.
func Pause(in Input) (*specs.Spec, error) {
	no, yes := false, true
	pod := *in.Pod
	pod.Spec.ShareProcessNamespace = nil // the namespace is its own
	in.Pod = &pod
	in.Container = &v1.Container{
		Command: []string{"/pause"},
		SecurityContext: &v1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsNonRoot: &no,
			Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		},
	}
	s, err := Build(in)
	if err != nil {
		return nil, err
	}
	score := max(pauseScore, in.MinOOMScoreAdj)
	s.Process.OOMScoreAdj = &score
	return s, nil
}
