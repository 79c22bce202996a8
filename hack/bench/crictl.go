package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// criConfig is that of a containerd with CRI, as a kubelet uses it.
const criConfig = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + image + `"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
`

// crictl starts the daemon of the variant in which crictl starts and removes pods with CRI, as a kubelet does, each
// with a sandbox of its own and on the host network. Without the programs it returns false.
func (s setup) crictl(ctx context.Context, floor string, m *meter) (v variant, stop func() error, ok bool) {
	p, v, err := s.startCRI(ctx, floor, m)
	stop = func() error { return p.Stop(syscall.SIGTERM) }
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "bench: skipping crictl: %v\n", err)
	}
	return v, stop, err == nil
}

func (s setup) startCRI(ctx context.Context, floor string, m *meter) (p *daemon.Process, v variant, err error) {
	containerd, err := exec.LookPath("./.cache/cluster/containerd")
	if err != nil {
		return nil, v, err
	}
	program, err := exec.LookPath("./.cache/bin/crictl")
	if err != nil {
		return nil, v, err
	}
	dir := filepath.Join(s.disk, "cri")
	config, socket := filepath.Join(dir, "containerd.toml"), filepath.Join(dir, "containerd.sock")
	if err := errors.Join(os.Mkdir(dir, 0o711), os.WriteFile(config, []byte(criConfig), 0o600), s.writeConfigs(dir)); err != nil {
		return nil, v, err
	}
	if containerd, err = filepath.Abs(containerd); err != nil {
		return nil, v, err
	}
	err = m.inGroup(daemonGroup, func() (err error) {
		p, err = daemon.Launch(ctx, filepath.Join(dir, "containerd.log"), containerd,
			"--config", config, "--address", socket, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(s.state, "cri"), "--log-level", "warn")
		return err
	})
	client := []string{program, "--runtime-endpoint", "unix://" + socket, "--timeout", "60s"}
	if err == nil {
		m.ignore(p.Pid())
		err = p.Await(ctx, func(ctx context.Context) error { return command(ctx, nil, append(client, "version")...) })
	}
	if err == nil {
		err = command(ctx, nil, floor, "-address", socket, "-namespace", "k8s.io", "-image", image, "prepare", s.archive)
	}
	if err != nil {
		return p, v, err
	}
	return p, variant{
		name: crictlName,
		start: func(j job) []string {
			run := append([]string{"xargs", "-P", "4", "-I{}"}, client...)
			run = append(run, "run", "--no-pull", filepath.Join(dir, "container.json"), filepath.Join(dir, "pod-{}.json"))
			return append([]string{"sh", "-c", `seq "$1" | { shift; "$@"; }`, "sh", strconv.Itoa(j.n)}, run...)
		},
		down:      append(client, "rmp", "--all", "--force"),
		downLimit: removalLimit,
		sandboxes: true,
		optional:  true,
		hostOnly:  true,
		cgroups:   []string{daemonGroup, "crictl"},
		daemons:   []int{p.Pid()},
	}, nil
}

// writeConfigs writes what crictl makes of each pod and of its container.
func (s setup) writeConfigs(dir string) error {
	type object = map[string]any
	write := func(name string, o object) error {
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	}
	errs := []error{write("container.json", object{"metadata": object{"name": "main"}, "image": object{"image": image}, "log_path": "main.log"})}
	for _, j := range s.jobs() {
		for i := range j.n {
			name := "pod-" + strconv.Itoa(i+1)
			const node = 2 // the network namespace of the machine
			errs = append(errs, write(name+".json", object{
				"metadata": object{"name": name, "namespace": "default", "uid": name}, "log_directory": filepath.Join(dir, "log", name),
				"linux": object{"cgroup_parent": "/crictl", "security_context": object{"namespace_options": object{"network": node}}},
			}))
		}
	}
	return errors.Join(errs...)
}
