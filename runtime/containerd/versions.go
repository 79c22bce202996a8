package containerd

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// versionTimeout bounds the wait for a runtime that is asked for its version.
const versionTimeout = 20 * time.Second

// Versions are the versions of the programs that an engine would use.
type Versions struct {
	Daemon      string // of the containerd daemon; empty without one
	RuntimePath string // of the OCI runtime of pods without a class; empty when there is none
	// RuntimeReason says why it is that one. If that has not been tried yet, another one may be chosen.
	RuntimeReason string
	Runtime       string // its version; empty when it does not tell
}

// LookUp asks a daemon and the OCI runtime for their versions, without starting anything. Only
// a daemon that does not answer is an error, which wraps ErrUnusable.
func LookUp(ctx context.Context, o Options) (Versions, error) {
	var v Versions
	if chosen, err := o.choose(o.outcome); err == nil && chosen.Path != "" {
		v.RuntimePath, v.RuntimeReason, v.Runtime = chosen.Path, chosen.Reason, ProgramVersion(ctx, chosen.Path)
	}
	if o.Address == "" {
		return v, nil
	}
	var err error
	v.Daemon, err = daemonVersion(ctx, strings.TrimPrefix(o.Address, "unix://"))
	return v, err
}

// ProgramVersion is the last word of "runc version 1.2.3", the first line that OCI runtimes
// write; empty if there is none.
func ProgramVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
