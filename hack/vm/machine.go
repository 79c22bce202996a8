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

// kind is a kind of virtual machine.
type kind struct {
	name    string // for the flag -machine
	systemd bool
	kernel  string // kernel parameters
	chosen  bool   // runs only if it is named
}

// kinds returns all kinds of machines.
func kinds() []kind {
	return []kind{
		{name: job.Plain, kernel: "cgroup_no_v1=all"},
		{name: job.SystemdV2, systemd: true, kernel: "cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1"},
		{name: job.SystemdV1, systemd: true, kernel: "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"},
		{name: job.ARM64, kernel: "cgroup_no_v1=all", chosen: true},
	}
}

// machine is a virtual machine that QEMU emulates.
type machine struct {
	name       string
	vm         string // where hack/setup.sh unpacks QEMU, the kernel and systemd
	kernel     string
	initrd     string
	parameters string   // of the kernel
	args       []string // more arguments of QEMU
	memory     int      // MiB
	console    string   // file for the output of the kernel and systemd
}

// machine returns a machine of the kind, which sees the files of the host.
func (b builder) machine(k kind, initrd string, memory int) (machine, error) {
	kernel, err := one(filepath.Join(b.kernel, "boot", "vmlinuz-*"))
	if err != nil {
		return machine{}, err
	}
	args := []string{"-no-reboot", "-virtfs", virtfs(job.HostTag, "/")}
	if k.name == job.ARM64 {
		args = append(args, "-virtfs", virtfs(job.RootTag, filepath.Join(b.kernel, "root")))
	}
	if k.systemd {
		layer := filepath.Join(b.vm, "systemd")
		if _, err := os.Stat(filepath.Join(layer, job.Init)); err != nil {
			return machine{}, fmt.Errorf("finding systemd for the machine (make test-vm unpacks it): %w", err)
		}
		args = append(args, "-virtfs", virtfs(job.SystemdTag, layer))
	}
	return machine{
		name: k.name, vm: b.vm, kernel: kernel, initrd: initrd, parameters: k.kernel, args: args, memory: memory,
		console: filepath.Join(b.tmp, "console-"+k.name),
	}, nil
}

// run runs the machine until it is switched off. output reads the output of the tests.
func (m machine) run(ctx context.Context, output func(io.Reader) error) error {
	program, hardware := m.hardware()
	qemu, err := m.emulator(program)
	if err != nil {
		return err
	}
	args := append([]string{
		"-L", filepath.Join(m.vm, "usr/share/qemu"), "-L", filepath.Join(m.vm, "usr/share/seabios"),
		// Debian's kernels do not boot on every host's KVM; emulation always works.
		"-accel", "tcg,thread=multi", "-smp", "2", "-m", strconv.Itoa(m.memory),
		"-nodefaults", "-nographic", "-kernel", m.kernel, "-initrd", m.initrd,
		"-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check nowatchdog mitigations=off " + m.parameters,
	}, m.args...)
	cmd := exec.CommandContext(ctx, qemu, append(args, hardware...)...)
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

// virtfs returns the option that shares a directory with the machine, read-only.
func virtfs(tag, dir string) string {
	return "local,path=" + strings.ReplaceAll(dir, ",", ",,") + ",mount_tag=" + tag + ",security_model=none,readonly=on,multidevs=remap"
}

// hardware returns the emulator, and options for a processor and for two serial ports, the first
// for the console and the second for the tests.
func (m machine) hardware() (string, []string) {
	if m.name == job.ARM64 {
		return "qemu-system-aarch64", []string{
			"-machine", "virt", "-cpu", "neoverse-n1", "-chardev", "file,id=console,path=" + m.console, "-chardev", "stdio,id=tests",
			"-device", "pci-serial-2x,chardev1=console,chardev2=tests",
		}
	}
	return "qemu-system-x86_64", []string{"-cpu", "max", "-serial", "file:" + m.console, "-serial", "stdio"}
}

func (m machine) emulator(program string) (string, error) {
	own := filepath.Join(m.vm, "usr/bin", program)
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("finding the emulator in %s and in PATH (make test-vm unpacks it): %w", own, err)
	}
	return path, nil
}

// consoleError returns an error with the last lines of the console.
func (m machine) consoleError() error {
	text, err := os.ReadFile(m.console)
	if err != nil {
		return fmt.Errorf("reading the console of the machine: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the end of its console:\n%s", strings.Join(lines[max(0, len(lines)-25):], "\n"))
}

// one returns the only file that matches the pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 1 {
		return found[0], nil
	}
	return "", errors.Join(err, fmt.Errorf("%d files match %s, want one: run hack/setup.sh vm", len(found), pattern))
}
