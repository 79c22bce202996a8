package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// backend keeps the rules of bridges in the kernel.
type backend interface {
	// open adds the bridge's rules, in place of older ones.
	open(ctx context.Context, b podBridge, lock hostLock) error
	// mapped returns whether the host ports of a pod have rules.
	mapped(ctx context.Context, b podBridge, lock hostLock) (func(uid string) bool, error)
	// remove removes them, and what was made for host ports. Absent ones are no error.
	remove(ctx context.Context, b podBridge, lock hostLock, log *slog.Logger) error
	// try checks the bridge's rules without adding them, and returns the name of the program.
	try(ctx context.Context, b podBridge) (string, error)
}

// firewall is a program of this machine that makes rules.
type firewall struct {
	backend
	plugins  []string // CNI plugins that bridges need for pods without a bandwidth limit
	ownPorts bool     // host ports are mapped by Ports and not by a CNI plugin
}

// keeps reports whether the firewall keeps the host ports of a pod.
func (f firewall) keeps(a attachment) bool {
	if f.ownPorts {
		return len(a.Ports) > 0
	}
	return len(a.Networks[0].Asked.Ports) > 0
}

// firewalls returns the programs in the directories of path, separated by colons, the
// preferred first. iptables comes before nft, since most machines' CNI plugins can use nothing
// else, but not where firewalld is installed, which deletes all rules of iptables when it starts and
// reloads. When there is none it returns a permanent error that says what to install.
func firewalls(path string) ([]firewall, error) {
	var found []firewall
	if dir := dirOf("iptables-restore", path); dir != "" {
		found = append(found, firewall{iptables{dir: dir}, []string{"bridge", "host-local", "portmap"}, false})
	}
	if dir := dirOf("nft", path); dir != "" {
		found = append(found, firewall{nft{dir}, []string{"bridge", "host-local"}, true})
	}
	if dirOf("firewalld", path) != "" {
		slices.Reverse(found)
	}
	if len(found) == 0 {
		return nil, failure.Permanentf("neither iptables nor nft is in PATH: install the package iptables or nftables, " +
			"or give the pod spec.hostNetwork")
	}
	return found, nil
}

// legacyTables returns the legacy variant of iptables if it has rules: programs such as Docker may use
// another variant than ours.
func legacyTables(path string) []firewall {
	dir := dirOf("iptables-legacy-restore", path)
	tables, _ := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	tables6, _ := os.ReadFile("/proc/thread-self/net/ip6_tables_names")
	if dir == "" || len(tables)+len(tables6) == 0 {
		return nil
	}
	return []firewall{{backend: iptables{dir: dir, legacy: true}}}
}

// bridgePlugins returns the CNI plugins that a bridge needs on this machine for pods without a
// bandwidth limit, and a permanent error like firewalls.
func bridgePlugins(path string) ([]string, error) {
	found, err := firewalls(path)
	if err != nil {
		return nil, err
	}
	return found[0].plugins, nil
}

// dirOf returns the first directory of path with the program, or "".
func dirOf(program, path string) string {
	for dir := range strings.SplitSeq(path, ":") {
		info, err := os.Stat(filepath.Join(dir, program))
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() {
			return dir
		}
	}
	return ""
}

// programLimit bounds the time of a program: it may wait for the kernel's lock for ever.
const programLimit = 20 * time.Second

// runProgram runs a program, which inherits the lock, and returns its output.
func runProgram(ctx context.Context, lock hostLock, stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programLimit, fmt.Errorf("it did not finish within %s", programLimit))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PATH="+systemPath(os.Getenv("PATH")))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	// If this process is killed, the next holder of the lock waits for the program.
	cmd.ExtraFiles = []*os.File{lock.file}
	if err := cmd.Run(); err != nil {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return "", failure.Permanentf("running %s: %w", cmd, err)
		}
		return "", fmt.Errorf("running %s: %w: %s", cmd, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// systemPath returns a PATH with the directories of system programs after its own: ours
// may lack them at boot and from cron.
func systemPath(path string) string {
	dirs := strings.Split(path, ":")
	for _, d := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.TrimPrefix(strings.Join(dirs, ":"), ":")
}
