// Package job is what a machine of hack/vm is asked to do: the file that the outside puts
// beside the machine's first process.
package job

// Path is the job's file in the machine's first file system, and Modules the directory that
// holds the kernel's modules, to be loaded in the order of their names.
const (
	Path    = "/job.json"
	Modules = "/modules"
)

// Tag is the name under which the machine finds the files of the one that it runs on, and
// Systemd that of the layer which holds systemd.
const (
	Tag     = "outside"
	Systemd = "systemd"
)

// Init is where systemd is, in Debian and in that layer.
const Init = "/usr/lib/systemd/systemd"

// TempDir is where the machine has memory for temporary files.
const TempDir = "/run/tmp"

// Exit begins the line with which the machine ends, before its exit code.
const Exit = "vm: exit code "

// Machine names the variable that tells the tests the kind of machine they run in: one of
// the Kinds.
const Machine = "RUNONCE_TEST_MACHINE"

// The kinds of machines.
const (
	// Plain has cgroup v2 and no other first process than ours.
	Plain = "plain"
	// SystemdV2 has systemd as its first process, and cgroup v2.
	SystemdV2 = "systemd"
	// SystemdV1 has systemd as its first process, and the controllers in cgroup v1: what
	// systemd calls hybrid.
	SystemdV1 = "systemd-v1"
)

// Job is a list of test programs to be run one after the other.
type Job struct {
	// Systemd says that the first process is to be systemd, and the tests its service.
	Systemd bool `json:"systemd"`
	// Env is the environment of each, in the form NAME=value.
	Env   []string `json:"env"`
	Steps []Step   `json:"steps"`
}

// Step is one test program.
type Step struct {
	// Name is what it is called in the output: the package.
	Name string `json:"name"`
	// Dir is the directory that it runs in, Program its file, in the outside's paths.
	Dir     string   `json:"dir"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
}
