package roottest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	cgroups = "/sys/fs/cgroup"
	// unified is where systemd mounts cgroup v2 beside v1. crun refuses to work with both.
	unified = "unified"
	// cgroup2 is the type of its file system (CGROUP2_SUPER_MAGIC).
	cgroup2 = 0x63677270
	// rerunEnv is set in the process that runs a test of crun.
	rerunEnv = "RUNONCE_TEST_CRUN"
)

// hideUnified replaces the directory of the cgroup mounts by one without v2. crun makes cgroups
// in all directories there, so that an unmount is not enough.
var hideUnified = sync.OnceValue(func() error {
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return err
	}
	// Any directory serves until the mount is moved.
	const dir = "/mnt"
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == unified {
			continue
		}
		if err := copyMount(e, filepath.Join(cgroups, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := syscall.Unmount(cgroups, syscall.MNT_DETACH); err != nil {
		return err
	}
	return syscall.Mount(dir, cgroups, "", syscall.MS_MOVE, "")
})

// copyMount makes what is at one path, a mount or a symbolic link, also available at another.
func copyMount(e os.DirEntry, from, to string) error {
	if !e.IsDir() {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	return syscall.Mount(from, to, "", syscall.MS_BIND, "")
}

// WithCrun runs the rest of a top-level test, which uses crun, where crun works: where the machine
// has cgroup v1 and v2, in another process, with mounts of its own and without v2. Everything
// that works with the containers has to run there, so that test is all of the process.
func WithCrun(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	Require(t)
	if _, err := exec.LookPath("crun"); err != nil {
		t.Fatalf("%v: hack/setup.sh test installs it", err)
	}
	var st syscall.Statfs_t
	hybrid := syscall.Statfs(filepath.Join(cgroups, unified), &st) == nil && st.Type == cgroup2
	switch {
	case os.Getenv(rerunEnv) != "":
		if err := hideUnified(); err != nil {
			t.Fatalf("hiding cgroup v2: %v", err)
		}
		test(t)
	case hybrid:
		rerun(t)
	default:
		test(t)
	}
}

// rerun runs the test in another process, and fails it if that fails.
func rerun(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(rerunFlags(os.Args[1:]), "-test.v", "-test.run="+rerunPattern(os.Args[1:], t.Name()))...)
	cmd.Env = append(os.Environ(), rerunEnv+"=1")
	// Go makes the mounts private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	// At once, so that it is seen how far a test came that has to be killed.
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stderr, &out), os.Stderr
	err := cmd.Run()
	if err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()+" ") {
		t.Errorf("without cgroup v2: %v", err)
	}
}

// rerunFlags are the flags of this process that another one for one of the tests needs.
func rerunFlags(args []string) []string {
	var flags []string
	for _, a := range args {
		if strings.HasPrefix(a, "-test.timeout=") {
			flags = append(flags, a)
		}
	}
	return flags
}

// rerunPattern selects the test, and of its subtests those that this process runs.
func rerunPattern(args []string, name string) string {
	pattern := "^" + name + "$"
	for _, a := range args {
		run, ok := strings.CutPrefix(a, "-test.run=")
		if _, below, found := strings.Cut(run, "/"); ok && found {
			return pattern + "/" + below
		}
	}
	return pattern
}
