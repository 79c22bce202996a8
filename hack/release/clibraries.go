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

// recordC adds the C libraries in runc, which Go's build information does not know.
func (a *architecture) recordC(ctx context.Context) error {
	sysroot := filepath.Join(a.sysroot, a.arch)
	text, err := os.ReadFile(filepath.Join(sysroot, "usr/lib", a.triplet(), "pkgconfig/libseccomp.pc"))
	if err != nil {
		return err
	}
	seccomp := regexp.MustCompile(`(?m)^Version: *(\S+)`).FindSubmatch(text)
	if seccomp == nil {
		return fmt.Errorf("libseccomp.pc has no version")
	}
	libc := "libc6-dev"
	if a.arch != goruntime.GOARCH {
		libc += "-" + a.arch + "-cross"
	}
	glibc, err := output(ctx, command{args: []string{"dpkg-query", "-W", "-f", "${Version}", libc}})
	if err != nil {
		return err
	}
	for _, c := range []struct{ name, version, copyright string }{
		{"libseccomp", string(seccomp[1]), filepath.Join(sysroot, "usr/share/doc/libseccomp-dev/copyright")},
		{"glibc", strings.TrimSpace(string(glibc)), filepath.Join("/usr/share/doc", libc, "copyright")},
	} {
		license, err := os.ReadFile(c.copyright)
		if err != nil {
			return err
		}
		a.licenses.put(c.name+" "+c.version+" (in runc)", string(license))
		a.sbom.extend("runc", a.sbom.library("generic", c.name, c.version))
	}
	return nil
}
