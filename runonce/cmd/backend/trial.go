package backend

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/ocispec"
)

// Versions returns the versions of the daemon and the OCI runtime, without starting anything.
func Versions(ctx context.Context, o Options) (containerd.Versions, error) {
	o.Trial = o.trial()
	return containerd.LookUp(ctx, o.Options)
}

// trial is how OCI runtimes are tried on this machine.
func (o Options) trial() *containerd.Trial {
	return &containerd.Trial{Machine: machineOf(cmp.Or(o.CgroupDriver, cgroup.DriverCgroupfs)), Spec: o.trialSpec}
}

// trialSpec returns the spec of a container of a pod with defaults only, whose cgroup it creates,
// and a function that removes that.
func (o Options) trialSpec(ctx context.Context) (*specs.Spec, func() error, error) {
	tree, detected, err := o.detect(detectCgroups)
	if err != nil {
		return nil, nil, err
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "runonce", Name: "trial", UID: "trial"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "trial", Command: []string{"/trial"}}}},
	}
	remove := func() error { return tree.Remove(context.WithoutCancel(ctx), pod) }
	parent, err := tree.Ensure(ctx, pod)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	spec, err := ocispec.Build(ocispec.Input{
		Context: ocispec.Context{Pod: pod}, Host: detected, Container: &pod.Spec.Containers[0],
		CgroupsPath: ocispec.CgroupsPath(parent, "trial"),
	})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return spec, remove, nil
}

// machineOf names all of this machine that an OCI runtime may not support: the kernel, the way
// in which cgroups are mounted, and how they are made.
func machineOf(driver string) string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:]) + ", cgroup " + cgroupMode(cgroup.Root) + ", " + driver
}

// cgroupMode tells v2, v1 and v1 with a v2 hierarchy apart, as systemd and OCI runtimes do.
func cgroupMode(root string) string {
	switch {
	case isCgroup2(root):
		return "v2"
	case isCgroup2(filepath.Join(root, "unified")):
		return "hybrid"
	}
	return "v1"
}

func isCgroup2(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}
