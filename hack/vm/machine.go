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

// machine is one that QEMU emulates.
type machine struct {
	vm      string // where hack/setup.sh unpacked QEMU and the kernel
	initrd  string
	memory  int    // MiB
	console string // gets what the kernel says
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
	cmd := exec.CommandContext(ctx, qemu,
		"-L", filepath.Join(m.vm, "usr/share/qemu"), "-L", filepath.Join(m.vm, "usr/share/seabios"),
		// Debian's kernels do not start under every host's KVM; the emulation always works.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(m.memory),
		"-nodefaults", "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", m.initrd,
		"-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all random.trust_cpu=on nowatchdog mitigations=off",
		"-serial", "file:"+m.console, "-serial", "stdio",
		"-virtfs", "local,path=/,mount_tag="+job.Tag+",security_model=none,readonly=on,multidevs=remap")
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

// lastWords is an error that says what the kernel said last.
func (m machine) lastWords() error {
	text, err := os.ReadFile(m.console)
	if err != nil {
		return fmt.Errorf("reading what the kernel said: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the kernel's last words:\n%s", strings.Join(lines[max(0, len(lines)-25):], "\n"))
}

// one returns the only file of a pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 1 {
		return found[0], nil
	}
	return "", errors.Join(err, fmt.Errorf("%d files %s, want one: run hack/setup.sh vm", len(found), pattern))
}
