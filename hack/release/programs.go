package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// architecture builds the files of one architecture.
type architecture struct {
	release
	arch      string
	work      string
	sbom      sbom
	licenses  licenses // of everything in the archive
	copyright []byte   // the licenses of the program alone
}

// maxSize is how large the program may be, in bytes.
const maxSize = 50e6

// triplet is GNU's name of the architecture.
func (a *architecture) triplet() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[a.arch]
}

// program is the path of a built program.
func (a *architecture) program(name string) string { return filepath.Join(a.work, "programs", name) }

// source is where a program comes from.
type source struct {
	dir, pkg string
	flags    []string
	env      []string
}

// goBuild builds a program; the flags make it the same in every directory.
func (a *architecture) goBuild(ctx context.Context, name string, s source) error {
	args := append([]string{"go", "build", "-trimpath", "-buildvcs=false", "-o", a.program(name)}, s.flags...)
	env := append([]string{"GOOS=linux", "GOARCH=" + a.arch}, s.env...)
	_, err := output(ctx, command{dir: s.dir, env: env, args: append(args, s.pkg)})
	return err
}

// mainSource is the program, with the shim for the architecture instead of that for this machine.
func (a *architecture) mainSource() source {
	return source{
		dir: a.root, pkg: ".", env: []string{"CGO_ENABLED=0"},
		flags: []string{"-tags", a.tags, "-ldflags", a.ldflags, "-overlay", filepath.Join(a.work, "overlay.json")},
	}
}

func (a *architecture) buildMain(ctx context.Context) error {
	if err := os.MkdirAll(a.work, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, command{dir: a.root, args: []string{"go", "run", "./hack/packshim", "-goarch", a.arch, "-o", a.work}}); err != nil {
		return err
	}
	return a.goBuild(ctx, "runonce", a.mainSource())
}

// runcSource is runc as its own project links it, static and with seccomp. libpathrs is left out:
// it needs Rust, and runc has the same in Go.
func (a *architecture) runcSource() source {
	sysroot := a.libraries()
	return source{
		dir: filepath.Join(a.root, "hack/runc"), pkg: "github.com/opencontainers/runc",
		env: []string{
			"CGO_ENABLED=1", "CC=" + a.triplet() + "-gcc", "CGO_CFLAGS=-O2 -g0",
			// Unlike what pkg-config says, this is part of the key in Go's build cache.
			"CGO_LDFLAGS=-L" + filepath.Join(sysroot, "usr/lib", a.triplet()),
			"PKG_CONFIG_LIBDIR=" + filepath.Join(sysroot, "usr/lib", a.triplet(), "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR=" + sysroot,
		},
		flags: []string{
			"-buildmode=pie", "-tags", "seccomp,urfave_cli_no_docs,netgo,osusergo",
			"-ldflags", "-s -w -buildid= -linkmode external -extldflags '-static-pie -Wl,--build-id=none'",
		},
	}
}

// plugins are the CNI plugins of the archive.
func plugins() []string {
	return []string{"main/bridge", "main/loopback", "ipam/host-local", "meta/portmap", "meta/firewall"}
}

func (a *architecture) pluginSource(plugin string) source {
	return source{
		dir: filepath.Join(a.root, "hack/cniplugins"), pkg: "github.com/containernetworking/plugins/plugins/" + plugin,
		env: []string{"CGO_ENABLED=0"}, flags: []string{"-ldflags", "-s -w -buildid="},
	}
}

// composeSource is the converter of compose files.
func (a *architecture) composeSource() source {
	return source{
		dir: filepath.Join(a.root, "manifests/compose"), pkg: "./cmd/runonce-compose",
		env: []string{"CGO_ENABLED=0"}, flags: []string{"-ldflags", "-s -w -buildid="},
	}
}

// buildAll builds all programs and records what they consist of.
func (a *architecture) buildAll(ctx context.Context) error {
	fmt.Println("release: building the programs for", a.arch)
	if err := a.buildMain(ctx); err != nil {
		return err
	}
	if err := errors.Join(a.record(ctx, "runonce", a.mainSource()), a.recordShim(ctx)); err != nil {
		return err
	}
	if err := a.buildCrun(ctx); err != nil {
		return err
	}
	if err := a.recordCrun(ctx); err != nil {
		return err
	}
	a.copyright = a.licenses.text()
	if err := a.goBuild(ctx, "runc", a.runcSource()); err != nil {
		return err
	}
	if err := errors.Join(a.record(ctx, "runc", a.runcSource()), a.recordC(ctx, "runc", "libseccomp")); err != nil {
		return err
	}
	if err := a.goBuild(ctx, "runonce-compose", a.composeSource()); err != nil {
		return err
	}
	if err := a.record(ctx, "runonce-compose", a.composeSource()); err != nil {
		return err
	}
	for _, p := range plugins() {
		name := filepath.Base(p)
		if err := a.goBuild(ctx, name, a.pluginSource(p)); err != nil {
			return err
		}
		if err := a.record(ctx, name, a.pluginSource(p)); err != nil {
			return err
		}
	}
	info, err := os.Stat(a.program("runonce"))
	if err == nil && info.Size() > maxSize {
		err = fmt.Errorf("the program has %d bytes, more than %.0f", info.Size(), maxSize)
	}
	return err
}

// record checks a program and adds it to the bill of materials and to the licenses.
func (a *architecture) record(ctx context.Context, name string, s source) error {
	if err := isStatic(a.program(name)); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(a.program(name))
	if err != nil {
		return err
	}
	a.sbom.add(name, info)
	return a.licenses.add(ctx, info, s, a.arch)
}

// recordShim adds the shim, which is embedded in the program.
func (a *architecture) recordShim(ctx context.Context) error {
	packed, err := os.ReadFile(filepath.Join(a.work, protocol.PackedName))
	if err != nil {
		return err
	}
	reader, err := zstd.NewReader(nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	program, err := reader.DecodeAll(packed, nil)
	if err != nil {
		return fmt.Errorf("unpacking the shim: %w", err)
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading the shim: %w", err)
	}
	a.sbom.add(protocol.Program, info)
	shim := source{dir: a.root, pkg: "./runtime/shim/runonce-shim", env: []string{"CGO_ENABLED=0"}}
	return a.licenses.add(ctx, info, shim, a.arch)
}

// isStatic returns an error unless the program runs without any library of the machine.
func isStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static", filepath.Base(path))
		}
	}
	return nil
}

type command struct {
	dir  string
	env  []string
	args []string
}

// output runs a command and returns its standard output.
func output(ctx context.Context, c command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c.args, " "), err, stderr.Bytes())
	}
	return out, nil
}
