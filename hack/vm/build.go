package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/runonce/runonce/hack/vm/job"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// builder compiles the tests and builds the machines' initial file systems.
type builder struct {
	root   string // the project's directory
	tmp    string
	vm     string   // where hack/setup.sh unpacks QEMU, the kernel and systemd
	kernel string   // where it unpacks the kernel for the machine
	flags  []string // more flags for the compiler
	env    []string // more variables for it
}

// forARM64 returns the builder for another architecture.
func (b builder) forARM64(ctx context.Context) (builder, error) {
	b.tmp, b.kernel = filepath.Join(b.tmp, job.ARM64), filepath.Join(b.vm, job.ARM64)
	b.env = []string{"GOARCH=" + job.ARM64}
	b.flags = []string{"-overlay=" + filepath.Join(b.tmp, "overlay.json")}
	return b, errors.Join(os.Mkdir(b.tmp, 0o755), tool(ctx, "env", "-C", b.root, "go", "run", "./hack/packshim", "-goarch", job.ARM64, "-o", b.tmp))
}

// initrd compiles the suites and all programs that they would compile themselves, and writes
// the initial file system of a machine: the init program, the job and the kernel modules.
func (b builder) initrd(ctx context.Context, k kind, suites []suite) (string, error) {
	modules, err := findModules(filepath.Join(b.kernel, "lib", "modules"))
	if err != nil {
		return "", fmt.Errorf("finding the kernel's modules (hack/setup.sh vm unpacks them): %w", err)
	}
	initProgram, err := b.compile(ctx, "init", "build", "./hack/vm/init")
	if err != nil {
		return "", err
	}
	todo, err := b.job(ctx, k, suites)
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.tmp, "initrd-"+k.name)
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("writing the initial file system: %w", err)
	}
	buffer := bufio.NewWriter(f)
	err = errors.Join(writeInitrd(buffer, initProgram, todo, modules), buffer.Flush(), f.Close())
	if err != nil {
		return "", fmt.Errorf("writing the initial file system: %w", err)
	}
	return path, nil
}

func writeInitrd(out io.Writer, initProgram string, todo []byte, modules []string) error {
	program, err := os.ReadFile(initProgram)
	if err != nil {
		return err
	}
	c := cpio{w: out}
	// The kernel opens the console for the init process.
	err = errors.Join(c.directory("dev"), c.device("dev/console", 5, 1), c.file("init", 0o755, program),
		c.file(job.Path[1:], 0o644, todo), c.directory(job.Modules[1:]))
	for i, m := range modules {
		body, readErr := os.ReadFile(m)
		err = errors.Join(err, readErr, c.file(fmt.Sprintf("%s/%03d-%s", job.Modules[1:], i, filepath.Base(m)), 0o644, body))
	}
	return errors.Join(err, c.end())
}

// job compiles the suites and returns the job that runs them.
func (b builder) job(ctx context.Context, k kind, suites []suite) ([]byte, error) {
	programs := filepath.Join(b.tmp, "programs")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return nil, err
	}
	j := job.Job{Systemd: k.systemd, Env: []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + filepath.Join(b.root, ".cache/debian/usr/bin"),
		"HOME=/root", "TMPDIR=" + job.TempDir, testimages.Compiled + "=" + programs, job.Machine + "=" + k.name,
	}}
	if k.name == job.ARM64 {
		j.Visible = []string{b.root, b.tmp}
	}
	for _, main := range []string{".", "./testdata/images/box"} {
		name := filepath.Base(main)
		if main == "." {
			name = testimages.Main
		}
		if _, err := b.compile(ctx, filepath.Join("programs", name), "build", main); err != nil {
			return nil, err
		}
	}
	for _, s := range suites {
		program, err := b.compile(ctx, strings.ReplaceAll(strings.Trim(s.dir, "./"), "/", "-")+".test", "test", s.dir)
		if err != nil {
			return nil, err
		}
		j.Steps = append(j.Steps, job.Step{
			Name: s.dir, Dir: filepath.Join(b.root, s.dir), Program: program,
			Args: []string{"-test.run=" + s.run, "-test.v", "-test.timeout=30m", "-test.failfast=false"},
		})
	}
	return json.Marshal(j)
}

// compile compiles a package or its tests, unless it already has, and returns the path of the
// program. The flags are those of make build and go test, to make use of the build cache.
func (b builder) compile(ctx context.Context, name, what, dir string) (string, error) {
	path := filepath.Join(b.tmp, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path}, b.flags...)
	if what == "test" {
		args = append([]string{"test", "-c", "-buildvcs=false", "-ldflags=-s -w", "-o", path}, b.flags...)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, dir)...)
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), b.env...)
	if what == "build" {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", dir, err, out)
	}
	return path, nil
}
