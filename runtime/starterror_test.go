package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/failure"
)

func TestExplainStart(t *testing.T) {
	t.Parallel()
	const (
		oom    = "container init was OOM-killed (memory limit too low?)"
		inCrun = "OOM: the memory limit could be too low: read from the init process"
		killed = "cannot start a container that has stopped"
		raise  = "the memory limit of %s is too low for it to start: raise it: "
		full   = `the emptyDir volume "cache" (medium Memory) holds 30Mi of the memory limit of 32Mi (resources.limits.memory): ` +
			"raise the limit, or give the volume a lower sizeLimit: "
	)
	for _, tt := range []struct {
		name      string
		limit     string // of the container
		podLimit  string
		held      int64 // in memory
		text      string
		refused   bool // by the OCI runtime
		want      string
		permanent bool
		ends      bool // the container
	}{
		{name: "too low", limit: "1Mi", text: oom, refused: true, want: strings.ReplaceAll(raise, "%s", "1Mi (resources.limits.memory)"), ends: true},
		{name: "too low, with crun", limit: "64Ki", text: inCrun, refused: true, want: strings.ReplaceAll(raise, "%s", "64Ki (resources.limits.memory)"), ends: true},
		{name: "of the pod", podLimit: "1Mi", text: oom, refused: true, want: strings.ReplaceAll(raise, "%s", "1Mi (spec.resources.limits.memory)"), ends: true},
		{name: "killed between creation and start", limit: "2M", text: killed, want: strings.ReplaceAll(raise, "%s", "2M (resources.limits.memory)"), ends: true},
		{name: "killed by somebody", limit: "64Mi", text: killed},
		{name: "killed without a limit", text: killed},
		{name: "the machine has no memory left", text: oom, refused: true, ends: true},
		{
			name: "no cgroup within the limit", limit: "64Ki", text: "mkdir /sys/fs/cgroup/memory/x: cannot allocate memory",
			want: strings.ReplaceAll(raise, "%s", "64Ki (resources.limits.memory)"), ends: true,
		},
		{name: "no cgroup, without a limit", text: "mkdir /sys/fs/cgroup/memory/x: cannot allocate memory"},
		{name: "full volume", limit: "32Mi", held: 30 << 20, text: oom, refused: true, want: full, ends: true},
		{name: "full volume, killed between creation and start", limit: "32Mi", held: 30 << 20, text: killed, want: full, ends: true},
		{
			name: "working directory", text: "mkdir /work: file exists", refused: true,
			want: `working directory "/work" (workingDir, or that of the image): `, permanent: true, ends: true,
		},
		{
			name: "working directory, with crun", text: "chdir `/work`: No such file or directory",
			want: `working directory "/work" (workingDir, or that of the image): `, permanent: true,
		},
		{name: "working directory on a file system that does not answer", text: "mkdir /work: stale file handle", want: `working directory "/work" (workingDir, or that of the image): `},
		{name: "other", limit: "1Mi", text: "no such device", refused: true, ends: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &v1.Container{}
			if tt.limit != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(tt.limit)}
			}
			pod := &v1.Pod{}
			if tt.podLimit != "" {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(tt.podLimit)}}
			}
			in := &failure.Error{Why: failure.ReasonRunError, Ended: tt.refused, Err: errors.New("starting: " + tt.text)}
			held := func(*v1.Pod) map[string]int64 { return map[string]int64{"cache": tt.held, "other": 1} }
			err := failedStart{pod, c, &specs.Spec{Process: &specs.Process{Cwd: "/work"}}, held}.explain(in)
			if want := tt.want + in.Error(); err.Error() != want {
				t.Errorf("%q\nwant %q", err, want)
			}
			if failure.IsPermanent(err) != tt.permanent || failure.IsRefused(err) != tt.ends || failure.Reason(err, "") != failure.ReasonRunError {
				t.Errorf("permanent %v, ends %v, reason %q", failure.IsPermanent(err), failure.IsRefused(err), failure.Reason(err, ""))
			}
		})
	}
}

// TestExplainMountPoint: the message names the volume in which the OCI runtime could not make a mount
// point, and only if there is one.
func TestExplainMountPoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "there"), nil, 0o600), os.Symlink("/nowhere", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	c := &v1.Container{
		TerminationMessagePath: "/data/log",
		VolumeMounts:           []v1.VolumeMount{{Name: "outer", MountPath: "/data/"}, {Name: "inner", MountPath: "data/in"}, {Name: "etc", MountPath: "/etc"}},
	}
	mounts := func(access ...string) []specs.Mount {
		m := []specs.Mount{bind("/proc", "proc", "ro"), bind("/etc/hosts", "/x/hosts", "rw"), bind("/data/log", "/x/log", "rw")}
		for i, v := range c.VolumeMounts {
			m = append(m, bind("/"+strings.Trim(v.MountPath, "/"), dir, access[i]))
		}
		return append(m, bind("/data/in/deep", "/x", "rw"), bind("/data/there", "/x", "rw"), bind("/data/link", "/x", "rw"))
	}
	at := func(target string) error {
		return fmt.Errorf("error mounting %q to rootfs at %q: %w", "/x", target, syscall.EROFS)
	}
	for _, tt := range []struct {
		name   string
		mounts []specs.Mount
		err    error
		want   string // what is added
	}{
		{"message", mounts("ro", "ro", "ro"), at("/data/log"), `: volume "outer" is mounted read-only at /data and has no log: set terminationMessagePath to a path outside of the volume`},
		{"file of the node", mounts("rw", "rw", "rro"), at("/etc/hosts"), `: volume "etc" is mounted read-only at /etc and has no hosts: mount only single files of the volume, with subPath`},
		{"volume in a volume", mounts("rw", "ro", "ro"), at("/data/in/deep"), `: volume "inner" is mounted read-only at /data/in and has no deep: mount the volume writable, or make it there`},
		{"the inner volume decides", mounts("ro", "rw", "ro"), at("/data/in/deep"), ""},
		{"writable", mounts("rw", "rw", "rw"), at("/data/log"), ""},
		{"there", mounts("ro", "ro", "ro"), at("/data/there"), ""},
		{"a link", mounts("ro", "ro", "ro"), at("/data/link"), ""},
		{"not a volume", mounts("ro", "ro", "ro"), at("/proc/x"), ""},
		{"another cause", mounts("ro", "ro", "ro"), errors.New("/data/log: no space"), ""},
	} {
		spec := &specs.Spec{Process: &specs.Process{Cwd: "/"}, Mounts: tt.mounts}
		got := failedStart{&v1.Pod{}, c, spec, nil}.explain(&failure.Error{Why: failure.ReasonRunError, Err: tt.err})
		if want := tt.err.Error() + tt.want; got.Error() != want || !errors.Is(got, tt.err) {
			t.Errorf("%s: %v\nwant %s", tt.name, got, want)
		}
	}
}
