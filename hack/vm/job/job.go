// Package job is what the machine of hack/vm is asked to do: the file that the outside
// puts beside the machine's first process.
package job

// Path is the job's file in the machine's first file system, and Modules the directory that
// holds the kernel's modules, to be loaded in the order of their names.
const (
	Path    = "/job.json"
	Modules = "/modules"
)

// Tag is the name under which the machine finds the files of the one that it runs on.
const Tag = "outside"

// TempDir is where the machine has memory for temporary files.
const TempDir = "/run/tmp"

// Exit begins the line with which the machine ends, before its exit code.
const Exit = "vm: exit code "

// Job is a list of test programs to be run one after the other.
type Job struct {
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
