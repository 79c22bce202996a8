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
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runtime/cgroup"
)

// The names of the variants.
const (
	floorName        = "floor"
	floorCrunName    = "floor crun"
	embeddedName     = "runonce embedded"
	embeddedRuncName = "runonce embedded runc"
	servicesName     = "runonce with Services"
	daemonName       = "runonce daemon"
	podmanName       = "podman kube play"
	runcName         = "runc alone"
	crunName         = "crun alone"
	crictlName       = "crictl"
)

var variantNames = []string{runcName, crunName, floorName, floorCrunName, embeddedName, embeddedRuncName, servicesName, daemonName, crictlName, podmanName}

// variant is one way to start pods.
type variant struct {
	name string
	// prepare is a command line that runs once before all others, or empty.
	prepare []string
	// start returns the command line that starts the job's pods.
	start func(j job) []string
	env   []string
	// down is the command line that removes everything, and its limit.
	down      []string
	downLimit time.Duration
	// list is the command line that shows the pods.
	list []string
	// sandboxes says that each pod has a container more, with the same program.
	sandboxes bool
	// optional variants are left out if they do not work on this machine.
	optional bool
	// hostOnly is for what has no network of its own.
	hostOnly bool
	// ours is runonce itself, which also gets the large jobs.
	ours bool
	// cgroups are those of other processes that work for the variant.
	cgroups []string
	// daemons are the process IDs of those that the variant uses.
	daemons []int
}

// setup is what all variants share.
type setup struct {
	options
	*workspace
	archive string // of the image
	plugins string // directory of the CNI plugins
	daemon  *daemon.Daemon
	cri     *daemon.Daemon // nil without the programs for it
}

// variants prepares everything that is not measured: the daemon, the images, the manifests. The
// function it returns undoes that; call it even after an error.
func variants(ctx context.Context, o options, m *meter, w *workspace) ([]variant, func() error, error) {
	s := setup{options: o, workspace: w, archive: filepath.Join(w.disk, "images", "pause.tar"), plugins: pluginDir()}
	undo := func() error { return nil }
	if err := w.writeManifests(append(o.jobs(), o.scaleJobs()...)); err != nil {
		return nil, undo, err
	}
	bin, err := daemon.Find(ctx, ".", daemon.Current)
	if err != nil {
		return nil, undo, err
	}
	start := func(name, bin, config string) (d *daemon.Daemon, err error) {
		err = m.inGroup(daemonGroup, func() (err error) {
			d, err = daemon.StartAt(ctx, bin, filepath.Join(w.disk, name), filepath.Join(w.state, name), config)
			return err
		})
		if d != nil {
			stop := undo
			undo = func() error { return errors.Join(d.Stop(), stop()) }
			m.ignore(d.Pid)
		}
		return d, err
	}
	if s.daemon, err = start("daemon", bin, daemon.WithoutCRI); err != nil {
		return nil, undo, err
	}
	if s.has(crictlName) && hasCRI() {
		if s.cri, err = start("cri", criDir, criConfig); err != nil {
			fmt.Fprintf(os.Stderr, "bench: skipping crictl: %v\n", err)
		} else if err := w.writeConfigs(o.jobs()); err != nil {
			return nil, undo, err
		}
	}
	all, err := s.all(ctx)
	return all, undo, err
}

func (s setup) all(ctx context.Context) ([]variant, error) {
	floor := filepath.Join(s.disk, "floor")
	if err := command(ctx, nil, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", floor, "./hack/floor"); err != nil {
		return nil, err
	}
	all := []variant{
		s.floor(floor, floorName),
		s.runonce(embeddedName, nil),
		s.runonce(embeddedRuncName, nil, "--oci-runtime", "runc"),
		s.runonce(daemonName, []string{"--address", s.daemon.Socket}),
		s.withServices(s.runonce(servicesName, nil)),
	}
	if err := s.writeRootfs(ctx); err != nil {
		return nil, err
	}
	all[3].daemons, all[3].cgroups = []int{s.daemon.Pid}, append(all[3].cgroups, daemonGroup)
	if runc, err := exec.LookPath("runc"); err == nil {
		all = append(all, s.alone(floor, runcName, "-runtime", runc))
	}
	if crun, err := exec.LookPath("crun"); err == nil {
		// The newest version of the specification that all crun know.
		flags := []string{"-runtime", crun, "-oci-version", "1.0.2"}
		all = append(all, s.floor(floor, floorCrunName, flags...), s.alone(floor, crunName, flags...))
	}
	if s.cri != nil {
		all = append(all, s.crictl(floor))
	}
	all = slices.DeleteFunc(all, func(v variant) bool { return !s.has(v.name) })
	slices.SortFunc(all, func(a, b variant) int {
		return slices.Index(variantNames, a.name) - slices.Index(variantNames, b.name)
	})
	for _, v := range all {
		if len(v.prepare) > 0 {
			if err := command(ctx, nil, v.prepare...); err != nil {
				return nil, err
			}
		}
	}
	if p, ok := s.podman(ctx); ok && s.has(podmanName) {
		all = append(all, p)
	}
	return all, nil
}

// floor is the bare client, with a containerd namespace and cgroup of the variant's own.
func (s setup) floor(bin, name string, flags ...string) variant {
	namespace := strings.ReplaceAll(name, " ", "-")
	network := filepath.Join(s.state, namespace)
	args := func(j job, rest ...string) []string {
		all := append([]string{bin, "-address", s.daemon.Socket, "-namespace", namespace, "-image", image}, flags...)
		if j.net == netBridge {
			all = append(all, "-bridge", network, "-cni-bin-dir", s.plugins)
		}
		return append(all, rest...)
	}
	return variant{
		name:    name,
		prepare: args(job{net: slices.Min(s.nets)}, "prepare", s.archive), // on the bridge, if it is measured
		start:   func(j job) []string { return args(j, "-n", strconv.Itoa(j.n), "start") },
		// It removes networks only of containers that have one.
		down:      args(job{net: netBridge}, "down"),
		downLimit: removalLimit,
		optional:  name != floorName,
		cgroups:   []string{daemonGroup, namespace},
		daemons:   []int{s.daemon.Pid},
	}
}

// alone is an OCI runtime without containerd: what a container costs at least.
func (s setup) alone(bin, name string, flags ...string) variant {
	namespace := strings.ReplaceAll(name, " ", "-")
	args := slices.Concat([]string{bin, "-namespace", namespace, "-alone", s.aloneDir()}, flags)
	return variant{
		name:      name,
		start:     func(j job) []string { return append(slices.Clone(args), "-n", strconv.Itoa(j.n), "start") },
		down:      append(slices.Clone(args), "down"),
		downLimit: removalLimit,
		optional:  true,
		hostOnly:  true,
		cgroups:   []string{namespace},
	}
}

func (s setup) aloneDir() string { return filepath.Join(s.state, "alone") }

// writeRootfs makes the root file system that all containers of an OCI runtime alone share.
func (s setup) writeRootfs(ctx context.Context) error {
	program, err := testimages.Program(ctx, ".", "pause")
	if err != nil {
		return err
	}
	dir := filepath.Join(s.aloneDir(), "rootfs")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "pause"), program, 0o755)); err != nil {
		return fmt.Errorf("making the root file system of an OCI runtime alone: %w", err)
	}
	return nil
}

// runonce takes flags for all commands and for run.
func (s setup) runonce(name string, flags []string, run ...string) variant {
	short := strings.ReplaceAll(strings.TrimPrefix(name, "runonce "), " ", "-")
	dir := filepath.Join(s.disk, short)
	command := func(verb string, args ...string) []string {
		where := []string{"bin/runonce", verb, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(s.state, short), "--log-dir", filepath.Join(dir, "log")}
		return slices.Concat(where, flags, args)
	}
	return variant{
		name: name,
		start: func(j job) []string {
			args := []string{"--settle", s.settle.String(), "--capacity", "pods=10000", "--images-dir", filepath.Dir(s.archive), "--cni-conf-dir", s.disk, s.manifest(j)}
			return command("run", append(slices.Clone(run), args...)...)
		},
		down:      command("down", "--all"),
		downLimit: removalLimit,
		list:      command("ps"),
		ours:      true,
		cgroups:   []string{strings.TrimPrefix(cgroup.ParentOf(filepath.Join(dir, "root")), "/")},
	}
}

// withServices gives the variant Services that select all pods.
func (s setup) withServices(v variant) variant {
	start := v.start
	v.start = func(j job) []string { return append(start(j), s.services()) }
	return v
}

// pluginDir returns the directory of the CNI plugins.
func pluginDir() string {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	return "/opt/cni/bin"
}

// removalLimit is for the removal of pods, which only takes long on a busy machine.
const removalLimit = 2 * time.Minute

// remove removes the variant's pods. It runs even if ctx is canceled.
func (v variant) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), v.downLimit, fmt.Errorf("it took longer than %s", v.downLimit))
	defer cancel()
	err := command(ctx, v.env, v.down...)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

// command runs a program without measuring it.
func command(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second // for processes that have inherited the output
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// tail returns the last 2,000 bytes.
func tail(b []byte) string {
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}
