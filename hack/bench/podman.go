package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// podmanCgroup is that of all pods of podman.
const podmanCgroup = "libpod_parent"

// containersConf needs no higher limit on open files than a process without privileges has.
// hack/setup.sh unpacks podman's helpers, which are then not where podman looks for them.
const containersConf = `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = [%[1]s"/usr/bin/conmon"]
helper_binaries_dir = [%[2]s"/usr/libexec/podman", "/usr/lib/podman"]
`

// podman returns the variant with podman's own directories and settings, if podman is installed
// and its cgroup is free.
func (s setup) podman(ctx context.Context) (variant, bool) {
	path, err := exec.LookPath("podman")
	if err != nil {
		return variant{}, false
	}
	if used, err := filepath.Glob("/sys/fs/cgroup/*/" + podmanCgroup + "/*"); err != nil || len(used) > 0 {
		fmt.Fprintf(os.Stderr, "bench: skipping podman: it runs pods on this machine\n")
		return variant{}, false
	}
	dir, state := filepath.Join(s.disk, "podman"), filepath.Join(s.state, "podman")
	unpacked := ""
	if i := strings.Index(path, "/usr/bin/podman"); i > 0 {
		unpacked = path[:i]
	}
	env, err := podmanFiles(dir, unpacked)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: skipping podman: %v\n", err)
		return variant{}, false
	}
	args := func(rest ...string) []string {
		return append([]string{
			path, "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(state, "run"),
			"--tmpdir", filepath.Join(state, "tmp"), "--cgroup-manager", "cgroupfs", "--network-config-dir", filepath.Join(dir, "networks"),
		}, rest...)
	}
	if err := command(ctx, env, args("load", "-i", s.archive)...); err != nil {
		fmt.Fprintf(os.Stderr, "bench: skipping podman, which does not work here: %v\n", err)
		return variant{}, false
	}
	return variant{
		name:      podmanName,
		optional:  true,
		env:       env,
		start:     func(j job) []string { return args("kube", "play", s.manifest(j)) },
		down:      args("pod", "rm", "-fa", "-t", "0"),
		downLimit: s.removal,
		cgroups:   []string{podmanCgroup, "conmon"},
	}, true
}

// podmanFiles writes podman's settings and returns the environment that makes it use them.
func podmanFiles(dir, unpacked string) ([]string, error) {
	conmon, helpers := "", ""
	env := []string{"HOME=" + dir, "CONTAINERS_CONF=" + filepath.Join(dir, "containers.conf")}
	if unpacked != "" {
		conmon = fmt.Sprintf("%q, ", filepath.Join(unpacked, "usr/bin/conmon"))
		helpers = fmt.Sprintf("%q, %q, ", filepath.Join(unpacked, "usr/lib/podman"), filepath.Join(unpacked, "usr/bin"))
		libraries, err := filepath.Glob(filepath.Join(unpacked, "usr/lib/*-linux-gnu"))
		if err != nil {
			return nil, fmt.Errorf("looking for podman's libraries: %w", err)
		}
		env = append(env, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	}
	for path, text := range map[string]string{
		".config/containers/policy.json": `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"containers.conf":                fmt.Sprintf(containersConf, conmon, helpers),
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("making the directory of podman's settings: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("writing podman's settings: %w", err)
		}
	}
	return env, os.MkdirAll(filepath.Join(dir, "networks"), 0o755)
}
