package ocispec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// pauseScore is the oom_score_adj of a pod's sandbox (containerd's defaultSandboxOOMAdj):
// killing it would end the whole pod.
const pauseScore = -998

// Pause returns the spec of the pause process, which holds the pod's process namespace. Like
// the sandbox of a CRI runtime it runs as the pod's user; it has no capability, since it only
// waits and reaps. The engine supplies its program. in.Container is ignored.
func Pause(in Input) (*specs.Spec, error) {
	pod := *in.Pod
	pod.Spec.ShareProcessNamespace = nil // it creates the namespace
	in.Pod = &pod
	in.AppArmorProfile = AppArmorName(in.Pod, &v1.Container{}, in.Host.AppArmor)
	in.Container = &v1.Container{
		Command: []string{"/pause"},
		SecurityContext: &v1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(false),
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
