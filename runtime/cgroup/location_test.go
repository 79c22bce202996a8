package cgroup

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHolds(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{}
	pod.UID = "1-2"
	const slice = "/runonce.slice/runonce-besteffort.slice/runonce-besteffort-pod1_2.slice"
	for path, want := range map[string]bool{
		"/":                           false,
		"/system.slice/ssh.service":   false,
		"/runonce/pod1-2":             false,
		"/runonce/besteffort/pod1-23": false,
		"/runonce-0a0b0c0d/besteffort/pod1-2/c-0": false,
		"/runonce/besteffort/pod1-2":              true,
		"/runonce/besteffort/pod1-2/c-0":          true,
		"/docker/0/runonce/besteffort/pod1-2/c-0": true,
		slice + "/x.scope":                        true,
	} {
		if got := Holds(DefaultParent, pod, path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if !Holds("/runonce-0a0b0c0d", pod, "/runonce-0a0b0c0d/besteffort/pod1-2") {
		t.Error("not in the pod of another root")
	}
}

func TestHoldsAll(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/":                          false,
		"/runonce-0a0b0c0d":          false,
		"/runonce_0a0b0c0d.slice":    false,
		"/runonce":                   true,
		"/runonce/besteffort/pod1-2": true,
		"/docker/0/runonce":          true,
		"/runonce.slice":             true,
		"/runonce.slice/runonce-besteffort.slice": true,
	} {
		if got := HoldsAll(DefaultParent, path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if !HoldsAll("/runonce-0a0b0c0d", "/runonce_0a0b0c0d.slice") {
		t.Error("the slice of another root is not its own")
	}
}

func TestParentOf(t *testing.T) {
	t.Parallel()
	if a, b := ParentOf("/a"), ParentOf("/b"); a == b || len(a) != len("/runonce-12345678") {
		t.Errorf("roots /a and /b: %s and %s", a, b)
	}
}
