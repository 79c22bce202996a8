package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/runonce/runonce/hack/vm/job"
)

// kind is a kind of machine.
type kind struct {
	name    string // as -machine calls it
	systemd bool
	kernel  string // what the kernel is told
}

// kinds are the machines there are.
func kinds() []kind {
	return []kind{
		{job.Plain, false, "cgroup_no_v1=all"},
		{job.SystemdV2, true, "cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1"},
		{job.SystemdV1, true, "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"},
	}
}

// machine is one that QEMU emulates.
type machine struct {
	kind    kind
	vm      string // where hack/setup.sh unpacked QEMU, the kernel and systemd
	initrd  string
	memory  int    // MiB
	console string // gets what the kernel and systemd say
}

// run runs the machine until it is switched off; output reads what the tests write.
func (m machine) run(ctx context.Context, output func(io.Reader) error) error {
	qemu, err := m.emulator()
	if err != nil {
		return err
	}
	kernel, err := one(filepath.Join(m.vm, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	args := []string{
		"-L", filepath.Join(m.vm, "usr/share/qemu"), "-L", filepath.Join(m.vm, "usr/share/seabios"),
		// Debian's kernels do not start under every host's KVM; the emulation always works.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(m.memory),
		"-nodefaults", "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", m.initrd,
		"-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check nowatchdog mitigations=off " + m.kind.kernel,
		"-serial", "file:" + m.console, "-serial", "stdio",
		"-virtfs", files(job.Tag, "/"),
	}
	if m.kind.systemd {
		layer := filepath.Join(m.vm, "systemd")
		if _, err := os.Stat(filepath.Join(layer, job.Init)); err != nil {
			return fmt.Errorf("finding systemd for the machine (make test-vm unpacks it): %w", err)
		}
		args = append(args, "-virtfs", files(job.Systemd, layer))
	}
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(m.vm, "usr/lib/x86_64-linux-gnu")+":"+filepath.Join(m.vm, "lib/x86_64-linux-gnu"))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", qemu, err)
	}
	return errors.Join(output(stdout), cmd.Wait())
}

// files offers a directory to the machine by a name, to be read.
func files(tag, dir string) string {
	return "local,path=" + strings.ReplaceAll(dir, ",", ",,") + ",mount_tag=" + tag + ",security_model=none,readonly=on,multidevs=remap"
}

func (m machine) emulator() (string, error) {
	own := filepath.Join(m.vm, "usr/bin/qemu-system-x86_64")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return "", fmt.Errorf("finding the emulator in %s and in PATH (make test-vm unpacks it): %w", own, err)
	}
	return path, nil
}

// lastWords is an error that says what the kernel and systemd said last.
func (m machine) lastWords() error {
	text, err := os.ReadFile(m.console)
	if err != nil {
		return fmt.Errorf("reading what the machine said: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the last words of its kernel and its first process:\n%s", strings.Join(lines[max(0, len(lines)-25):], "\n"))
}

// one returns the only file of a pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 1 {
		return found[0], nil
	}
	return "", errors.Join(err, fmt.Errorf("%d files %s, want one: run hack/setup.sh vm", len(found), pattern))
}
