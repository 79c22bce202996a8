package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/hack/machine"
)

// installation is the box as the machine sees it.
func (b *box) installation() machine.Installation {
	return machine.Installation{Dir: b.dir, Programs: []string{"/bin/box", "/bin/web", "/runonce", "etcd", "postgres"}}
}

// inspect returns the current state of the machine.
func (b *box) inspect(t testing.TB) machine.State {
	t.Helper()
	m, err := b.installation().Inspect(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// unchanged fails the test if there is something new on the machine, or if the box still has
// files of a pod. Processes may take a moment to be reaped.
func (b *box) unchanged(t testing.TB) {
	t.Helper()
	diff := func() string { return cmp.Diff(machine.State{}, b.inspect(t).Since(b.before)) }
	if !eventually(func() bool { return diff() == "" }) {
		t.Errorf("left on the machine:\n%s", diff())
	}
	if left, err := b.installation().PodFiles(); err != nil || len(left) > 0 {
		t.Errorf("left of pods: %v, %v", left, err)
	}
}

// checkInspect fails the test unless inspect sees what a running pod on the box's bridge needs;
// otherwise unchanged would be worth nothing.
func (b *box) checkInspect(t testing.TB) {
	t.Helper()
	m := b.inspect(t).Since(b.before)
	for what, found := range map[string][]string{
		"mounts": m.Mounts, "links": m.Links, "processes": m.Processes, "cgroups": m.Cgroups, "rules": m.Rules,
	} {
		if len(found) == 0 {
			t.Errorf("no %s of the running pods found", what)
		}
	}
}

// processes lists the shims of the box and the processes of its containers.
func (b *box) processes(t testing.TB) []string {
	t.Helper()
	found, err := b.installation().Processes()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// containers lists the processes of the box's containers.
func (b *box) containers(t testing.TB) []string {
	t.Helper()
	found, err := b.installation().Containers()
	if err != nil {
		t.Fatal(err)
	}
	return found
}
