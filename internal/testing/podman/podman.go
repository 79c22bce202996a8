// Package podman runs podman, if it is installed, with directories and settings of a test's own.
package podman

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Cgroup is that of all pods of podman.
const Cgroup = "libpod_parent"

// config needs no higher limit on open files than a process without privileges has.
// hack/setup.sh unpacks podman's helpers, which are then not where podman looks for them.
const config = `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = [%[1]s"/usr/bin/conmon"]
helper_binaries_dir = [%[2]s"/usr/libexec/podman", "/usr/lib/podman"]
`

// Podman is an installed podman.
type Podman struct {
	// Env is needed besides the environment of this process.
	Env  []string
	args []string
}

// ErrNotInstalled is the error of a machine without podman.
var ErrNotInstalled = errors.New("podman is not installed")

// Find returns the podman of the PATH. It keeps images in dir and what ends with a reboot in state.
// A path in state must be short enough for a socket.
func Find(dir, state string) (*Podman, error) {
	path, err := exec.LookPath("podman")
	if err != nil {
		return nil, ErrNotInstalled
	}
	if used() {
		return nil, errors.New("podman runs pods on this machine")
	}
	runc, err := exec.LookPath("runc") // as for the others
	if err != nil {
		return nil, err
	}
	unpacked := ""
	if i := strings.Index(path, "/usr/bin/podman"); i > 0 {
		unpacked = path[:i]
	}
	env, err := files(dir, unpacked)
	return &Podman{Env: env, args: []string{
		path, "--runtime", runc, "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(state, "run"),
		"--tmpdir", filepath.Join(state, "tmp"), "--cgroup-manager", "cgroupfs", "--network-config-dir", filepath.Join(dir, "networks"),
	}}, err
}

// used says whether a process is in a cgroup of podman.
func used() bool {
	all, _ := filepath.Glob("/sys/fs/cgroup/*/" + Cgroup + "/*/cgroup.procs")
	return slices.ContainsFunc(all, func(path string) bool {
		procs, _ := os.ReadFile(path)
		return len(procs) > 0
	})
}

// Args returns the command line of a command.
func (p *Podman) Args(command ...string) []string {
	return append(p.args[:len(p.args):len(p.args)], command...)
}

// files writes podman's settings and returns the environment that makes it use them.
func files(dir, unpacked string) ([]string, error) {
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
		"containers.conf":                fmt.Sprintf(config, conmon, helpers),
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
