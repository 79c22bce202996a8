package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
)

// libraries is the directory with the C libraries for the architecture.
func (a *architecture) libraries() string { return filepath.Join(a.sysroot, a.arch) }

var pkgConfigVersion = regexp.MustCompile(`(?m)^Version: *(\S+)`)

// recordC adds the C libraries in a program, by the names that pkg-config has for them, and the C
// library.
func (a *architecture) recordC(ctx context.Context, program string, libraries ...string) error {
	for _, name := range libraries {
		text, err := os.ReadFile(filepath.Join(a.libraries(), "usr/lib", a.triplet(), "pkgconfig", name+".pc"))
		if err != nil {
			return err
		}
		version := pkgConfigVersion.FindSubmatch(text)
		if version == nil {
			return fmt.Errorf("%s.pc has no version", name)
		}
		debianName := "lib" + strings.TrimPrefix(name, "lib") + "-dev"
		if err := a.recordLibrary(program, name, string(version[1]), filepath.Join(a.libraries(), "usr/share/doc", debianName, "copyright")); err != nil {
			return err
		}
	}
	libc := "libc6-dev"
	if a.arch != goruntime.GOARCH {
		libc += "-" + a.arch + "-cross"
	}
	version, err := output(ctx, command{args: []string{"dpkg-query", "-W", "-f", "${Version}", libc}})
	if err != nil {
		return err
	}
	return a.recordLibrary(program, "glibc", strings.TrimSpace(string(version)), filepath.Join("/usr/share/doc", libc, "copyright"))
}

func (a *architecture) recordLibrary(program, name, version, copyright string) error {
	license, err := os.ReadFile(copyright)
	if err != nil {
		return err
	}
	a.licenses.put(fmt.Sprintf("%s %s (in %s)", name, version, program), string(license))
	a.sbom.extend(program, a.sbom.library("generic", name, version))
	return nil
}
