package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/vm/job"
)

// unitDir is the directory for systemd units of the current boot. systemd starts the unit of
// the tests and the one it requires.
const (
	unitDir    = "/run/systemd/system"
	unit       = "vm-tests.service"
	deviceUnit = "vm-devices.service"
)

// service has the settings of a container engine's service: systemd does not move its
// processes, limit their number, or stop it if one of them runs out of memory. The machine is
// switched off when it stops.
const service = `[Unit]
Description=Tests
DefaultDependencies=no
Requires=` + deviceUnit + `
After=` + deviceUnit + `
AllowIsolate=yes
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate

[Service]
Type=exec
ExecStart=` + self + ` ` + asService + `
StandardInput=null
StandardOutput=file:` + output + `
StandardError=inherit
Delegate=yes
KillMode=process
TasksMax=infinity
OOMPolicy=continue
`

// devices is a service with a device policy, like systemd-journald on real machines. With
// cgroup v1, when systemd starts the first such service, it moves all processes of the machine,
// including containers, to the root of the devices hierarchy.
const devices = `[Unit]
Description=A service with a device policy
DefaultDependencies=no

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
StandardInput=null
StandardOutput=null
DeviceAllow=char-* rw
`

// becomeSystemd replaces this process with systemd; it returns only if that fails. It hides the
// host's units, settings and generators from systemd, and also that the host may be a container,
// because there systemd ignores the kernel's command line.
func becomeSystemd() error {
	for _, path := range []string{
		"/etc/systemd", "/usr/local/lib/systemd", "/.dockerenv",
		"/usr/lib/systemd/system-generators", "/usr/lib/systemd/system-environment-generators",
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("hiding the host's files from systemd: %w", err)
		}
	}
	if err := os.MkdirAll(unitDir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the units: %w", err)
	}
	err := errors.Join(
		os.WriteFile(unitDir+"/"+unit, []byte(service), 0o644),
		os.WriteFile(unitDir+"/"+deviceUnit, []byte(devices), 0o644),
		// systemd sets the host name again, and treats a machine without an ID as booting for the
		// first time.
		os.WriteFile("/etc/hostname", []byte(hostname+"\n"), 0o644),
		os.WriteFile("/etc/machine-id", []byte(strings.Repeat("5", 32)+"\n"), 0o444),
	)
	if err != nil {
		return fmt.Errorf("writing the files of systemd: %w", err)
	}
	// If systemd crashes, the machine is switched off. Its messages go to the kernel's terminal.
	args := []string{job.Init, "--unit=" + unit, "--crash-reboot=yes", "--show-status=no", "--log-target=console", "--log-color=no"}
	if err := unix.Exec(job.Init, args, os.Environ()); err != nil {
		return fmt.Errorf("starting %s: %w", job.Init, err)
	}
	return nil
}
