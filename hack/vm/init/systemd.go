package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/vm/job"
)

// unitDir is where systemd looks for the units of this boot. It is to start the unit of the
// tests, and what that requires.
const (
	unitDir    = "/run/systemd/system"
	unit       = "vm-tests.service"
	deviceUnit = "vm-devices.service"
)

// service is a service as those that start containers are: nobody else moves its
// processes, bounds their number or ends it for one that ran out of memory. However it
// ends, so does the machine.
const service = `[Unit]
Description=the tests of the machine
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

// devices is a service that systemd bounds the devices of, as it does systemd-journald on
// real machines. When the first one of these comes, systemd moves all processes of a
// machine with cgroup v1, containers as well, to the root of that hierarchy.
const devices = `[Unit]
Description=a service with devices of its own
DefaultDependencies=no

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
StandardInput=null
StandardOutput=null
DeviceAllow=char-* rw
`

// becomeSystemd makes systemd the first process; it returns only if that fails. Of the
// machine outside systemd sees neither units nor settings, and no generator of either; nor
// that it may be a container, for in one systemd does not read what the kernel is told.
func becomeSystemd() error {
	for _, path := range []string{
		"/etc/systemd", "/usr/local/lib/systemd", "/.dockerenv",
		"/usr/lib/systemd/system-generators", "/usr/lib/systemd/system-environment-generators",
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("hiding what is the outside's from systemd: %w", err)
		}
	}
	if err := os.MkdirAll(unitDir, 0o755); err != nil {
		return fmt.Errorf("writing the unit of the tests: %w", err)
	}
	err := errors.Join(
		os.WriteFile(unitDir+"/"+unit, []byte(service), 0o644),
		os.WriteFile(unitDir+"/"+deviceUnit, []byte(devices), 0o644),
		// systemd names the machine anew, and takes one without an ID for one that boots for
		// the first time, with more to do.
		os.WriteFile("/etc/hostname", []byte(hostname+"\n"), 0o644),
		os.WriteFile("/etc/machine-id", []byte(strings.Repeat("5", 32)+"\n"), 0o444),
	)
	if err != nil {
		return fmt.Errorf("writing the files of systemd: %w", err)
	}
	// A systemd that cannot go on ends the machine; what it says is on the kernel's terminal.
	args := []string{job.Init, "--unit=" + unit, "--crash-reboot=yes", "--show-status=no", "--log-target=console", "--log-color=no"}
	if err := unix.Exec(job.Init, args, os.Environ()); err != nil {
		return fmt.Errorf("starting %s: %w", job.Init, err)
	}
	return nil
}
