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

	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/hack/vm/job"
)

// workshop makes what machines are started with.
type workshop struct {
	root string // the project
	tmp  string
	vm   string // where hack/setup.sh unpacked QEMU, the kernel and systemd
}

// initrd compiles the suites and everything that they would compile themselves, and writes
// the first file system of such a machine: the first process, the job, and the kernel's
// modules. What was compiled for another machine is not compiled again.
func (w workshop) initrd(ctx context.Context, k kind, suites []suite) (string, error) {
	modules, err := findModules(filepath.Join(w.vm, "lib", "modules"))
	if err != nil {
		return "", fmt.Errorf("finding the kernel's modules (hack/setup.sh vm unpacks them): %w", err)
	}
	first, err := w.compile(ctx, "init", "build", "./hack/vm/init")
	if err != nil {
		return "", err
	}
	todo, err := w.job(ctx, k, suites)
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.tmp, "initrd-"+k.name)
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("writing the machine's first files: %w", err)
	}
	buffer := bufio.NewWriter(f)
	err = errors.Join(writeInitrd(buffer, first, todo, modules), buffer.Flush(), f.Close())
	if err != nil {
		return "", fmt.Errorf("writing the machine's first files: %w", err)
	}
	return path, nil
}

func writeInitrd(out io.Writer, first string, todo []byte, modules []string) error {
	program, err := os.ReadFile(first)
	if err != nil {
		return err
	}
	c := cpio{w: out}
	// The kernel opens the console for its first process.
	err = errors.Join(c.directory("dev"), c.device("dev/console", 5, 1), c.file("init", 0o755, program),
		c.file(job.Path[1:], 0o644, todo), c.directory(job.Modules[1:]))
	for i, m := range modules {
		body, readErr := os.ReadFile(m)
		err = errors.Join(err, readErr, c.file(fmt.Sprintf("%s/%03d-%s", job.Modules[1:], i, filepath.Base(m)), 0o644, body))
	}
	return errors.Join(err, c.end())
}

// job compiles the suites and writes down what is to be run.
func (w workshop) job(ctx context.Context, k kind, suites []suite) ([]byte, error) {
	programs := filepath.Join(w.tmp, "programs")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return nil, err
	}
	j := job.Job{Systemd: k.systemd, Env: []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + filepath.Join(w.root, ".cache/debian/usr/bin"),
		"HOME=/root", "TMPDIR=" + job.TempDir, testimages.Compiled + "=" + programs, job.Machine + "=" + k.name,
	}}
	for _, main := range []string{".", "./testdata/images/box"} {
		name := filepath.Base(main)
		if main == "." {
			name = testimages.Main
		}
		if _, err := w.compile(ctx, filepath.Join("programs", name), "build", main); err != nil {
			return nil, err
		}
	}
	for _, s := range suites {
		program, err := w.compile(ctx, strings.ReplaceAll(strings.Trim(s.dir, "./"), "/", "-")+".test", "test", s.dir)
		if err != nil {
			return nil, err
		}
		j.Steps = append(j.Steps, job.Step{
			Name: s.dir, Dir: filepath.Join(w.root, s.dir), Program: program,
			Args: []string{"-test.run=" + s.run, "-test.v", "-test.timeout=30m", "-test.failfast=false"},
		})
	}
	return json.Marshal(j)
}

// compile compiles a package, or its tests, and returns the program; at once when it has
// done so before. The flags are those of make build and go test, so that little has to be
// compiled anew.
func (w workshop) compile(ctx context.Context, name, what, dir string) (string, error) {
	path := filepath.Join(w.tmp, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, dir}
	if what == "test" {
		args = []string{"test", "-c", "-buildvcs=false", "-ldflags=-s -w", "-o", path, dir}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = w.root
	if what == "build" {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", dir, err, out)
	}
	return path, nil
}
