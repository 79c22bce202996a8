package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/runonce/runonce/hack/daemon"
	"github.com/runonce/runonce/runtime/cgroup"
)

// variant is one way to start pods.
type variant struct {
	name string
	// start returns the command line that starts n pods.
	start func(n int) []string
	// down are the command lines that remove everything.
	down [][]string
	// optional variants are left out if they do not work on this machine.
	optional bool
	// cgroups of other processes that work for the variant.
	cgroups []string
}

// variants prepares everything that is not measured: the daemon, the images, the
// manifests. The function it returns undoes that; call it even after an error.
func variants(ctx context.Context, o options, m *meter, images string) ([]variant, func() error, error) {
	undo := func() error { return nil }
	floor := filepath.Join(o.work, "floor")
	if err := command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", floor, "./hack/floor"); err != nil {
		return nil, undo, err
	}
	bin, err := daemon.Find(ctx, ".", daemon.Current)
	if err != nil {
		return nil, undo, err
	}
	var d *daemon.Daemon
	if err := m.inGroup(daemonGroup, func() (err error) {
		d, err = daemon.Start(ctx, bin, o.work)
		return err
	}); err != nil {
		return nil, undo, err
	}
	undo = d.Stop
	m.ignore(d.Pid)
	if err := manifests(o); err != nil {
		return nil, undo, err
	}
	onDaemon := []string{floor, "-address", d.Socket, "-namespace", "floor"}
	archive := filepath.Join(images, "pause.tar")
	if err := command(ctx, append(onDaemon, "import", archive)...); err != nil {
		return nil, undo, err
	}
	all := []variant{{
		name: "floor",
		start: func(n int) []string {
			return append(onDaemon, "-image", image, "-n", strconv.Itoa(n), "start")
		},
		down:    [][]string{append(onDaemon, "down")},
		cgroups: []string{daemonGroup, "floor"},
	}}
	embedded := runonce(o, "embedded", images)
	client := runonce(o, "daemon", images, "--address", d.Socket)
	client.cgroups = append(client.cgroups, daemonGroup)
	all = append(all, embedded, client)
	if path, err := exec.LookPath("podman"); err == nil {
		if err := command(ctx, path, "load", "-i", archive); err != nil {
			return nil, undo, err
		}
		all = append(all, podman(o, path))
	}
	return pick(all, o.only), undo, nil
}

// pick returns the variants that the -only flag names, or all.
func pick(all []variant, only string) []variant {
	if only == "" {
		return all
	}
	names := strings.Split(only, ",")
	return slices.DeleteFunc(all, func(v variant) bool { return !slices.Contains(names, v.name) })
}

func runonce(o options, name, images string, flags ...string) variant {
	dir := filepath.Join(o.work, name)
	command := func(verb string, args ...string) []string {
		where := []string{"bin/runonce", verb, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(state, name), "--log-dir", filepath.Join(dir, "log")}
		return slices.Concat(where, flags, args)
	}
	return variant{
		name:    "runonce " + name,
		start:   func(n int) []string { return command("run", "--settle", "0", "--images-dir", images, manifest(o, n)) },
		down:    [][]string{command("down", "--all")},
		cgroups: []string{strings.TrimPrefix(cgroup.ParentOf(filepath.Join(dir, "root")), "/")},
	}
}

func podman(o options, path string) variant {
	return variant{
		name:     "podman kube play",
		optional: true,
		start: func(n int) []string {
			return []string{path, "--cgroup-manager=cgroupfs", "kube", "play", manifest(o, n)}
		},
		down:    [][]string{{path, "pod", "rm", "-fa", "-t", "0"}},
		cgroups: []string{"libpod_parent"},
	}
}

func manifest(o options, n int) string {
	return filepath.Join(o.work, "pods-"+strconv.Itoa(n)+".yaml")
}

// manifests writes one file with n pods for each size. Like the floor's containers, the
// pods use the host network.
func manifests(o options) error {
	for _, n := range o.sizes {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata:
  name: pod-%03d
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
`, i, image)
		}
		if err := os.WriteFile(manifest(o, n), []byte(b.String()), 0o644); err != nil {
			return fmt.Errorf("writing manifests: %w", err)
		}
	}
	return nil
}

// command runs a program without measuring it.
func command(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// tail returns the last 2,000 bytes.
func tail(b []byte) string {
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

// removeTree removes a directory of the benchmark, unless something is mounted in it.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("removing %q: %w", dir, err)
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return errors.New("something is still mounted in " + dir)
	}
	return os.RemoveAll(dir)
}
