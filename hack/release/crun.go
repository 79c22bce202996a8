package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// crunDir has the files of Debian's source package of crun, and the unpacked source.
func (r release) crunDir() string { return filepath.Join(r.sysroot, "crun") }

func (r release) crunSource() string { return filepath.Join(r.crunDir(), "source") }

// buildCrun builds crun, static and with seccomp. Without a static libsystemd, it cannot ask
// systemd for scopes.
func (a *architecture) buildCrun(ctx context.Context) error {
	source, err := filepath.Abs(a.crunSource())
	if err != nil {
		return err
	}
	dir := filepath.Join(a.work, "crun")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		a.configureCrun(source),
		// Several of these at a time would write the same files.
		{"make", "git-version.h"},
		{"make", "-C", "libocispec", "generate"},
		{"make", "-j", strconv.Itoa(runtime.NumCPU()), "crun", "CRUN_LDFLAGS=-XCClinker -static-pie -s -Wl,-z,now,--build-id=none"},
	} {
		// Variables of our make are not for this one.
		if _, err := output(ctx, command{dir: dir, args: args, env: []string{"MAKEFLAGS=", "PYTHONHASHSEED=0"}}); err != nil {
			return err
		}
	}
	if err := copyProgram(filepath.Join(dir, "crun"), a.program("crun")); err != nil {
		return err
	}
	return isStatic(a.program("crun"))
}

func (a *architecture) configureCrun(source string) []string {
	libraries := filepath.Join(a.libraries(), "usr/lib", a.triplet())
	return []string{
		filepath.Join(source, "configure"), "--quiet", "--prefix=" + archivePrefix, "--host=" + a.triplet(),
		"--disable-shared", "--disable-systemd", "--disable-criu", "--disable-dl", "--disable-maintainer-mode", "--disable-dependency-tracking",
		"CC=" + a.triplet() + "-gcc", "CFLAGS=-O2 -g0 -fstack-protector-strong -ffile-prefix-map=" + source + "=.",
		"CPPFLAGS=-D_FORTIFY_SOURCE=2 -I" + filepath.Join(a.libraries(), "usr/include"), "LDFLAGS=-L" + libraries,
		// Debian's name of the static library; and a library that crun does not use.
		"YAJL_CFLAGS= ", "YAJL_LIBS=-lyajl_s", "ac_cv_search_yajl_tree_get=-lyajl_s", "ac_cv_search_gcry_check_version=no",
	}
}

// recordCrun adds crun and its libraries to the bill of materials and to the licenses.
func (a *architecture) recordCrun(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(a.crunDir(), "crun_*.dsc"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("%d source packages of crun in %s, want one", len(found), a.crunDir()))
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "crun_"), ".dsc")
	a.sbom.addPackage("crun", version)
	for _, dir := range []string{".", "libocispec", "debian"} {
		if err := a.licenses.addFrom("crun "+version, filepath.Join(a.crunSource(), dir)); err != nil {
			return err
		}
	}
	return a.recordC(ctx, "crun", "libseccomp", "libcap", "yajl")
}

// copyCrunSource copies the source package of crun beside the archives: its license allows copies of
// the program only with the source.
func (r release) copyCrunSource() error {
	found, err := filepath.Glob(filepath.Join(r.crunDir(), "crun_*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(r.out, filepath.Base(path)), body); err != nil {
			return err
		}
	}
	return nil
}
