// Package job is the interface between hack/vm and the init program of its machines.
package job

// Path is the job's file in the initial file system. Modules is the directory with the kernel
// modules, which are loaded in order of their names.
const (
	Path    = "/job.json"
	Modules = "/modules"
)

// The names of shared directories: HostTag has the files of the host, SystemdTag the layer
// with systemd, RootTag the root file system of another architecture.
const (
	HostTag    = "host"
	SystemdTag = "systemd"
	RootTag    = "root"
)

// Init is the path of systemd, in Debian and in that layer.
const Init = "/usr/lib/systemd/systemd"

// TempDir is a directory for temporary files, in memory.
const TempDir = "/run/tmp"

// Exit is the prefix of the machine's last line, which has its exit code.
const Exit = "vm: exit code "

// Machine is the environment variable with the kind of machine that a test runs in.
const Machine = "RUNONCE_TEST_MACHINE"

// The kinds of machines.
const (
	// Plain has cgroup v2 and our own init program.
	Plain = "plain"
	// SystemdV2 has systemd and cgroup v2.
	SystemdV2 = "systemd"
	// SystemdV1 has systemd, and cgroup v1 in systemd's hybrid mode.
	SystemdV1 = "systemd-v1"
	// ARM64 is like Plain, but for another architecture, and with Debian's files instead of the host's.
	ARM64 = "arm64"
	// Debian has its own disk with Debian and cloud-init; its tests are in hack/vm/debian.
	Debian = "debian"
)

// Job is a list of test programs to run one after the other.
type Job struct {
	// Systemd makes systemd the init process and runs the tests as its service.
	Systemd bool `json:"systemd"`
	// Visible are all directories of the host that can be seen in a root file system of another
	// architecture; the host's files are the root if there are none.
	Visible []string `json:"visible,omitempty"`
	// Env is the environment of each program, in the form NAME=value.
	Env   []string `json:"env"`
	Steps []Step   `json:"steps"`
}

// Step is one test program.
type Step struct {
	// Name is the package, for the output.
	Name string `json:"name"`
	// Dir is its working directory and Program its file; both are paths on the host.
	Dir     string   `json:"dir"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
}
