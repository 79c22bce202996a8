// Command init is the init program of the machines of hack/vm. It mounts the files of the host
// at the same paths, read-only below a tmpfs layer, or some of them in another root. Then it runs
// the test programs of its job with cgroup v2 and switches the machine off. If the job asks for
// systemd, it makes systemd the init process and runs the tests as a service.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/vm/job"
)

// output is the terminal for the output of the tests; the kernel uses another one.
const output = "/dev/ttyS1"

const hostname = "vm"

// Copies of this program and its job, which outlive the initial file system.
const (
	kept     = "/run/vm"
	self     = kept + "/init"
	keptFile = kept + "/job.json"
)

// The arguments with which this program runs the tests instead of booting the machine.
const (
	asTests   = "tests"
	asService = "service"
)

func main() {
	// The directories of Debian's programs.
	_ = os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	what := ""
	if len(os.Args) > 1 {
		what = os.Args[1]
	}
	switch what {
	case asTests:
		os.Exit(run())
	case asService:
		switchOff(run())
	default:
		code := 1
		if err := boot(&code); err != nil {
			fmt.Println("vm:", err)
		}
		switchOff(code)
	}
}

// switchOff prints the exit code and switches the machine off.
func switchOff(code int) {
	fmt.Println(job.Exit + strconv.Itoa(code))
	unix.Sync()
	// Let the terminal transmit the last line.
	time.Sleep(200 * time.Millisecond)
	fmt.Println("vm:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// boot sets up the machine and runs the job in a child process, since the init process has to
// reap all orphans.
func boot(code *int) error {
	if err := errors.Join(mount("proc", "/proc", ""), mount("sysfs", "/sys", ""), mount("devtmpfs", "/dev", "")); err != nil {
		return err
	}
	text, err := os.ReadFile(job.Path)
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	var j job.Job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := enterHostFiles(j); err != nil {
		return err
	}
	if err := terminal(); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(kept, 0o755), os.WriteFile(self, program, 0o755), os.WriteFile(keptFile, text, 0o644)); err != nil {
		return fmt.Errorf("keeping the job: %w", err)
	}
	if err := network(); err != nil {
		return err
	}
	if j.Systemd {
		return becomeSystemd()
	}
	*code, err = runAndReap()
	return err
}

func mount(kind, path, data string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, path, kind, 0, data); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mounting %s on %q: %w", kind, path, err)
	}
	return nil
}

func loadModules() error {
	files, err := os.ReadDir(job.Modules)
	if err != nil {
		return fmt.Errorf("loading modules: %w", err)
	}
	for _, f := range files {
		body, err := os.ReadFile(filepath.Join(job.Modules, f.Name()))
		if err != nil {
			return fmt.Errorf("loading modules: %w", err)
		}
		if err := unix.InitModule(body, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading module %s: %w", f.Name(), err)
		}
	}
	return nil
}

// enterHostFiles makes the host's files the root, below a tmpfs layer and, if asked for, the
// layer with systemd; or the root for another architecture, with only some of the host's. /run is
// a separate tmpfs, so containers do not run from the shared files.
func enterHostFiles(j job.Job) error {
	const root = "/machine"
	host, err := mountShared(job.HostTag)
	if err != nil {
		return err
	}
	lower := host
	if len(j.Visible) > 0 {
		if lower, err = mountShared(job.RootTag); err != nil {
			return err
		}
	}
	if j.Systemd {
		layer, err := mountShared(job.SystemdTag)
		if err != nil {
			return err
		}
		lower = layer + ":" + lower
	}
	if err := errors.Join(mount("tmpfs", memory, "size=90%"), mountWritable(lower, root)); err != nil {
		return err
	}
	for _, dir := range j.Visible {
		if err := mountWritable(host+dir, root+dir); err != nil {
			return err
		}
	}
	// As switch_root does: pivot_root does not work on the initial file system.
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	err = errors.Join(mount("proc", "/proc", ""), mount("sysfs", "/sys", ""), mount("devtmpfs", "/dev", ""),
		mount("devpts", "/dev/pts", "ptmxmode=0666"), mount("tmpfs", "/dev/shm", ""), mount("tmpfs", "/run", "mode=0755,size=90%"),
		os.MkdirAll(job.TempDir, 0o777))
	if j.Systemd {
		return err // systemd mounts the cgroups itself
	}
	return errors.Join(err, mount("cgroup2", "/sys/fs/cgroup", ""))
}

// memory is a tmpfs for what is written.
const memory = "/memory"

// mountWritable mounts read-only directories below a tmpfs layer.
func mountWritable(lower, path string) error {
	files, work := memory+path+"/files", memory+path+"/work"
	if err := errors.Join(os.MkdirAll(path, 0o755), os.MkdirAll(files, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("overlay", path, "overlay", 0, "lowerdir="+lower+",upperdir="+files+",workdir="+work); err != nil {
		return fmt.Errorf("mounting a tmpfs layer above %s: %w", lower, err)
	}
	return nil
}

// mountShared mounts a directory that QEMU shares and returns its path.
func mountShared(tag string) (string, error) {
	dir := "/" + tag
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount(tag, dir, "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,cache=loose,msize=512000"); err != nil {
		return "", fmt.Errorf("mounting the shared directory %q: %w", tag, err)
	}
	return dir, nil
}

// terminal makes the terminal for the tests standard input, output and error.
func terminal() error {
	tty, err := os.OpenFile(output, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the terminal: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(int(tty.Fd()), fd, 0); err != nil {
			return fmt.Errorf("opening the terminal: %w", err)
		}
	}
	return nil
}

// network sets up the loopback interface, an address and a default route.
func network() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "eth0", "type", "dummy"},
		{"address", "add", "192.0.2.2/24", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", "192.0.2.1"},
	} {
		cmd := exec.CommandContext(context.Background(), "ip", args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return unix.Sethostname([]byte(hostname))
}

// runAndReap runs the job in a child process and reaps all children until that exits.
func runAndReap() (int, error) {
	p, err := os.StartProcess(self, []string{"vm-tests", asTests}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 1, fmt.Errorf("starting the tests: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("waiting for the tests: %w", err)
		case pid == p.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// run runs the steps of the job and returns the exit code: 0 if all of them passed.
func run() int {
	text, err := os.ReadFile(keptFile)
	var j job.Job
	if err := errors.Join(err, json.Unmarshal(text, &j)); err != nil {
		fmt.Println("vm: reading the job:", err)
		return 1
	}
	code := 0
	for _, s := range j.Steps {
		fmt.Println("vm: running", s.Name, s.Args)
		start := time.Now()
		cmd := exec.CommandContext(context.Background(), s.Program, s.Args...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.Dir, j.Env, os.Stdout, os.Stderr
		verdict := "ok"
		if err := cmd.Run(); err != nil {
			verdict, code = "FAIL", 1
			fmt.Printf("%s: %v\n", s.Name, err)
		}
		fmt.Printf("%s\t%s\t%.1fs\n", verdict, s.Name, time.Since(start).Seconds())
	}
	return code
}
