package ocispec

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

func TestPause(t *testing.T) {
	t.Parallel()
	yes, user := true, int64(1000)
	in := testInput(v1.Container{})
	in.Pod.Spec.ShareProcessNamespace = &yes
	in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &user, RunAsNonRoot: &yes}
	in.MinOOMScoreAdj, in.AppArmor = -1000, true
	s, err := Pause(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range s.Linux.Namespaces {
		if ns.Type == specs.PIDNamespace && ns.Path != "" {
			t.Errorf("its process namespace is %q, want a new one", ns.Path)
		}
	}
	p := s.Process
	if *p.OOMScoreAdj != -998 || p.User.UID != 1000 || !p.NoNewPrivileges || len(p.Capabilities.Bounding) > 0 || !s.Root.Readonly {
		t.Errorf("process %+v, score %d, read-only root %t", p, *p.OOMScoreAdj, s.Root.Readonly)
	}
	if p.ApparmorProfile != DefaultAppArmor {
		t.Errorf("its AppArmor profile is %q", p.ApparmorProfile)
	}
	if !*in.Pod.Spec.ShareProcessNamespace {
		t.Error("it changed the pod")
	}
	// The user of the sandbox's image is not verified.
	in.Pod.Spec.SecurityContext.RunAsUser = nil
	if _, err := Pause(in); err != nil {
		t.Error(err)
	}
}
