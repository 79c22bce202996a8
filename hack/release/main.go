// Command release builds the files of a release into a directory: for each architecture the
// static program, an archive of everything that pods need, a Debian package, an RPM package and
// a software bill of materials, further the source of crun, and the checksums of all of them. "make
// release" calls it.
//
// The files depend on nothing but the commit and on the versions of Go, gcc, the C libraries and
// crun: two builds in different directories are equal.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// release is what all architectures have in common.
type release struct {
	root    string // the project's directory
	out     string
	work    string // for intermediate files
	version string
	epoch   time.Time // the time of all files
	ldflags string
	tags    string
	nfpm    string // its program
	sysroot string // has a directory with C libraries for each architecture, and the source of crun
}

func main() {
	var r release
	flag.StringVar(&r.out, "o", "dist", "directory to write to")
	archs := flag.String("arch", "amd64,arm64", "comma-separated architectures")
	described := flag.String("version", "", "version, as git describe prints it")
	epoch := flag.Int64("epoch", 0, "time of the commit, in seconds since 1970")
	flag.StringVar(&r.ldflags, "ldflags", "", "flags of the linker for the program")
	flag.StringVar(&r.tags, "tags", "", "build tags for the program")
	flag.StringVar(&r.nfpm, "nfpm", "", "path of nfpm")
	flag.StringVar(&r.sysroot, "sysroot", "", "directory with C libraries for each architecture and the source of crun")
	crun := flag.String("crun", "", "write only crun, for this machine's architecture, to this file")
	flag.Parse()
	r.epoch = time.Unix(*epoch, 0).UTC()
	r.version = packageVersion(*described, r.epoch)
	build := func(r release) error { return r.build(context.Background(), strings.Split(*archs, ",")) }
	if *crun != "" {
		build = func(r release) error { return r.writeCrun(context.Background(), *crun) }
	}
	if err := r.prepared(build); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// prepared sets the directories while build does its work.
func (r release) prepared(build func(r release) error) (err error) {
	if r.root, err = os.Getwd(); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	return build(r)
}

// writeCrun builds crun alone.
func (r release) writeCrun(ctx context.Context, path string) error {
	a := r.architecture(runtime.GOARCH)
	if err := a.buildCrun(ctx); err != nil {
		return err
	}
	return copyProgram(a.program("crun"), path)
}

func (r release) build(ctx context.Context, archs []string) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return fmt.Errorf("emptying %s: %w", r.out, err)
	}
	all := make([]*architecture, len(archs))
	for i, arch := range archs {
		all[i] = r.architecture(arch)
		if err := all[i].buildAll(ctx); err != nil {
			return fmt.Errorf("building for %s: %w", arch, err)
		}
	}
	if err := r.writeManual(ctx, all); err != nil {
		return fmt.Errorf("generating the manual page: %w", err)
	}
	for _, a := range all {
		if err := a.write(ctx); err != nil {
			return fmt.Errorf("writing the files for %s: %w", a.arch, err)
		}
	}
	if err := r.copyCrunSource(); err != nil {
		return fmt.Errorf("copying the source of crun: %w", err)
	}
	return writeChecksums(r.out)
}

func (r release) architecture(arch string) *architecture {
	return &architecture{release: r, arch: arch, work: filepath.Join(r.work, arch)}
}

// manual is the path of the manual page, which all architectures share.
func (r release) manual() string { return filepath.Join(r.work, "runonce.1") }

// writeManual generates the manual page with a program that runs on this machine: one of those that were built, or
// else one built only for this.
func (r release) writeManual(ctx context.Context, built []*architecture) error {
	var host *architecture
	if i := slices.IndexFunc(built, func(a *architecture) bool { return a.arch == runtime.GOARCH }); i >= 0 {
		host = built[i]
	} else {
		host = r.architecture(runtime.GOARCH)
		if err := host.buildMain(ctx); err != nil {
			return err
		}
	}
	_, err := output(ctx, command{dir: r.root, args: []string{"go", "run", "./hack/gendocs", host.program("runonce"), r.manual()}})
	return err
}

// packageVersion turns the output of git describe into a version that Debian and RPM sort in
// the right order: commits after a tag come after it, pre-releases before. Without a tag, the
// time of the commit orders versions.
func packageVersion(described string, at time.Time) string {
	clean, dirty := strings.CutSuffix(described, "-dirty")
	version, tagged := strings.CutPrefix(clean, "v")
	if !tagged {
		version = "0.0.0+git" + at.Format("20060102150405") + "." + strings.ReplaceAll(clean, "-", ".")
	}
	if i := strings.LastIndex(version, "-g"); tagged && i > 0 {
		if j := strings.LastIndex(version[:i], "-"); j > 0 {
			version = version[:j] + "+" + version[j+1:i] + "." + version[i+1:]
		}
	}
	version = strings.Replace(version, "-", "~", 1)
	version = strings.ReplaceAll(version, "-", ".")
	if dirty {
		version += "+dirty"
	}
	return version
}

// writeChecksums writes SHA256SUMS for the other files of the directory, as sha256sum does.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("computing checksums: %w", err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(body), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
