package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// crictlProgram and criDir, which has a containerd with CRI, are where make bench CRICTL=1 puts them.
const crictlProgram, criDir = ".cache/bin/crictl", ".cache/cluster"

// hasCRI reports whether the programs of the variant crictl are there.
func hasCRI() bool {
	for _, path := range []string{crictlProgram, filepath.Join(criDir, "containerd")} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// crictl is the variant in which crictl starts and removes pods with CRI, as a kubelet does, each with a sandbox of its
// own and on the host network.
func (s setup) crictl(floor string) variant {
	client := []string{crictlProgram, "--runtime-endpoint", "unix://" + s.cri.Socket, "--timeout", "60s"}
	run := slices.Concat([]string{"xargs", "-P", "4", "-I{}"}, client,
		[]string{"run", "--no-pull", filepath.Join(s.configs(), "container.json"), filepath.Join(s.configs(), "pod-{}.json")})
	return variant{
		name:    crictlName,
		prepare: []string{floor, "-address", s.cri.Socket, "-namespace", "k8s.io", "-image", image, "prepare", s.archive},
		start: func(j job) []string {
			return append([]string{"sh", "-c", `seq "$1" | { shift; "$@"; }`, "sh", strconv.Itoa(j.n)}, run...)
		},
		down:      slices.Concat(client, []string{"rmp", "--all", "--force"}),
		downLimit: removalLimit,
		sandboxes: true,
		optional:  true,
		hostOnly:  true,
		cgroups:   []string{daemonGroup, "crictl"},
		daemons:   []int{s.cri.Pid},
	}
}

// configs is the directory of what crictl makes of each pod and of its container.
func (w *workspace) configs() string { return filepath.Join(w.disk, "crictl") }

// writeConfigs writes them for the jobs.
func (w *workspace) writeConfigs(jobs []job) error {
	dir := w.configs()
	type object = map[string]any
	write := func(name string, o object) error {
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	}
	errs := []error{os.Mkdir(dir, 0o755), write("container.json", object{"metadata": object{"name": "main"}, "image": object{"image": image}, "log_path": "main.log"})}
	for _, j := range jobs {
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
