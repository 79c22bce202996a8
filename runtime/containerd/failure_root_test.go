package containerd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/containerd"
)

func TestStartFailureLeavesNothing(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	for _, tc := range []struct {
		name      string
		change    func(*engine.ContainerConfig)
		permanent bool
		reason    string
		message   string
	}{
		{
			name:      "command missing",
			change:    func(c *engine.ContainerConfig) { c.Spec.Process.Args = []string{"nope"} },
			permanent: true, reason: "RunContainerError",
			message: `starting container "main": exec: "nope": executable file not found in $PATH`,
		},
		{
			name:      "path missing",
			change:    func(c *engine.ContainerConfig) { c.Spec.Process.Args = []string{"/bin/nope"} },
			permanent: true, reason: "RunContainerError",
			message: `starting container "main": exec: "/bin/nope": stat /bin/nope: no such file or directory`,
		},
		{
			name:      "not executable",
			change:    func(c *engine.ContainerConfig) { c.Spec.Process.Args = []string{"/etc/passwd"} },
			permanent: true, reason: "RunContainerError",
			message: `starting container "main": exec: "/etc/passwd": permission denied`,
		},
		{
			name:      "label too long",
			change:    func(c *engine.ContainerConfig) { c.Labels["long"] = strings.Repeat("x", 5000) },
			permanent: true, reason: "CreateContainerError",
		},
		{
			name:   "no image",
			change: func(c *engine.ContainerConfig) { c.Image = "localhost/none:1" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := p.box(t, "a", "sleep")
			tc.change(&c)
			err := e.Start(t.Context(), c)
			if err == nil {
				t.Fatal("it started")
			}
			if tc.message != "" && err.Error() != tc.message {
				t.Errorf("message %q", err)
			}
			var f interface {
				error
				Permanent() bool
				Reason() string
			}
			if errors.As(err, &f) != (tc.reason != "") || f != nil && (f.Permanent() != tc.permanent || f.Reason() != tc.reason) {
				t.Errorf("error %v %+v", err, f)
			}
			if tc.reason == "" && !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("error %v", err)
			}
			if left := leftovers(t, p); left != "" && !onlySnapshots(left) {
				t.Errorf("left:\n%s", left)
			}
			if all, _ := e.Containers(t.Context(), ""); len(all) != 0 {
				t.Errorf("containers %+v", all)
			}
		})
	}
	// And the same name can be used.
	if err := e.Start(t.Context(), p.box(t, "a", "sleep")); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), p.box(t, "a", "sleep")); err == nil {
		t.Error("a running container was started again")
	}
	if got, _ := find(t, e, "a"); got.State != engine.StateRunning {
		t.Errorf("%+v", got)
	}
	if err := e.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, p); left != "" {
		t.Errorf("left: %s", left)
	}
}

// leftovers lists what is left of containers on disk and in the process table, after waiting
// for what is removed in the background.
func leftovers(t *testing.T, p testDirs) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		found := look(t, p)
		if found == "" || time.Now().After(deadline) {
			return found
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// onlySnapshots reports whether only files of snapshots are left, which the garbage collector
// removes in its own time, and at the latest when the engine is closed.
func onlySnapshots(left string) bool {
	for line := range strings.Lines(left) {
		if !strings.Contains(line, "/snapshots/") {
			return false
		}
	}
	return true
}

func look(t *testing.T, p testDirs) string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"state/io.containerd.runtime.v2.task/*/*", "root/io.containerd.runtime.v2.task/*/*",
		"root/containers/*", "state/runc/*/*", "state/s/*",
	} {
		paths, err := filepath.Glob(filepath.Join(p.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	// Of the snapshots only the image's own layers.
	snapshots, err := filepath.Glob(filepath.Join(p.dir, "root/io.containerd.snapshotter.v1.overlayfs/snapshots/*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshots) > 1 {
		found = append(found, snapshots...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.dir) {
			found = append(found, line)
		}
	}
	if s := shims(t, p.dir); s != "" {
		found = append(found, s)
	}
	return strings.Join(found, "\n")
}

func TestUnusable(t *testing.T) {
	roottest.Require(t)
	dir := t.TempDir()
	mute, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "mute"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	foreign, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = foreign.Close() })
	go func() {
		for {
			c, err := foreign.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example.com ESMTP\r\n"))
			_ = c.Close()
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*containerd.Options)
		want   string
	}{
		{"missing", func(o *containerd.Options) { o.Address = filepath.Join(dir, "none") }, "no such file or directory"},
		{"dead", func(o *containerd.Options) { o.Address = filepath.Join(dir, "dead") }, "connection refused"},
		{"foreign", func(o *containerd.Options) { o.Address = filepath.Join(dir, "foreign") }, "does not answer as containerd"},
		{"mute", func(o *containerd.Options) { o.Address = "unix://" + filepath.Join(dir, "mute") }, "does not answer as containerd"},
		{"no socket", func(o *containerd.Options) { o.Address = filepath.Join(dir, "file") }, "is not a socket"},
		{"no runc", func(o *containerd.Options) { o.RuncPath = filepath.Join(dir, "none") }, "finding the OCI runtime"},
		{"no root", func(o *containerd.Options) { o.Root = "/proc/none" }, "/proc/none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := containerd.Options{Root: t.TempDir(), State: filepath.Join(t.TempDir(), "s")}
			tc.change(&o)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			e, err := containerd.Open(ctx, o)
			if err == nil {
				t.Fatal("it opened", e.Close())
			}
			if ctx.Err() != nil {
				t.Error("it does not give up")
			}
			if !errors.Is(err, containerd.ErrUnusable) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
		})
	}
}
