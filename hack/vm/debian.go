package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/hack/vm/job"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// debian returns a machine with Debian and cloud-init on a disk of its own. Its configuration is
// examples/cloud-init/user-data.yaml as it is. There is no network: the package of "make release"
// comes from a directory on the disk, and the image of the example is one of ours.
func (b builder) debian(ctx context.Context, memory int) (machine, error) {
	made := filepath.Join(b.vm, job.Debian)
	disk, tree, seed := filepath.Join(b.tmp, "disk"), filepath.Join(b.tmp, "tree"), filepath.Join(b.tmp, "seed")
	err := errors.Join(b.debianPackages(ctx, tree, filepath.Join(made, "packages")), b.otherReleases(tree),
		b.debianTests(ctx, tree), b.debianImages(ctx, tree), b.seed(seed))
	if err != nil {
		return machine{}, err
	}
	if err := tool(ctx, "cp", "--sparse=always", filepath.Join(made, "disk"), disk); err != nil {
		return machine{}, fmt.Errorf("copying the disk (make test-cloud-init makes it): %w", err)
	}
	if err := addToDisk(ctx, disk, tree); err != nil {
		return machine{}, err
	}
	return machine{
		name: job.Debian, vm: b.vm, memory: memory, console: filepath.Join(b.tmp, "console-debian"),
		kernel: filepath.Join(made, "vmlinuz"), initrd: filepath.Join(made, "initrd.img"), parameters: "root=/dev/vda rw",
		args: []string{
			"-drive", "file=" + disk + ",format=raw,if=virtio,cache=unsafe",
			"-drive", "driver=vvfat,dir=" + seed + ",label=CIDATA,if=virtio,read-only=on",
		},
	}, nil
}

// seed writes the configuration that cloud-init finds on a disk labeled CIDATA.
func (b builder) seed(dir string) error {
	userData, err := os.ReadFile(filepath.Join(b.root, "examples/cloud-init/user-data.yaml"))
	return errors.Join(err, put(dir, "user-data", userData, 0o644), put(dir, "meta-data", []byte("instance-id: test\n"), 0o644))
}

// debianPackages adds a repository with the released package and what it depends on, and later
// versions of that and of the RPM package.
func (b builder) debianPackages(ctx context.Context, tree, needed string) error {
	released, err := one(filepath.Join(b.root, "dist/runonce_*_amd64.deb"))
	if err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(needed, "*.deb"))
	if err != nil {
		return err
	}
	var index bytes.Buffer
	for _, path := range append(all, released) {
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		control, err := exec.CommandContext(ctx, "dpkg-deb", "-f", path).Output()
		if err != nil {
			return fmt.Errorf("reading package %s: %w", path, err)
		}
		name := filepath.Base(path)
		fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, name, len(body), sha256.Sum256(body))
		if err := put(tree, "srv/repository/"+name, body, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(put(tree, "srv/repository/Packages", index.Bytes(), 0o644),
		put(tree, "etc/apt/sources.list", []byte("deb [trusted=yes] file:/srv/repository ./\n"), 0o644),
		put(tree, "etc/cloud/cloud.cfg.d/90_offline.cfg", []byte("apt: {preserve_sources_list: true}\nlocale: C.UTF-8\n"), 0o644),
		b.laterPackages(ctx, released, filepath.Join(tree, "srv")))
}

// otherReleases adds the released archive and RPM package.
func (b builder) otherReleases(tree string) error {
	for to, pattern := range map[string]string{"srv/archive.tar.gz": "runonce-*-linux-amd64.tar.gz", "srv/runonce.rpm": "runonce-*.x86_64.rpm"} {
		path, err := one(filepath.Join(b.root, "dist", pattern))
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err := errors.Join(err, put(tree, to, body, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// laterPackages writes the Debian and the RPM package with a later version and another unit.
func (b builder) laterPackages(ctx context.Context, from, to string) error {
	dir := filepath.Join(b.tmp, "later")
	if err := tool(ctx, "dpkg-deb", "-R", from, dir); err != nil {
		return err
	}
	control := filepath.Join(dir, "DEBIAN/control")
	err := errors.Join(tool(ctx, "sed", "-i", "s/^Version: .*/&+later/", control),
		tool(ctx, "sed", "-i", "s/^Description=.*/& (later)/", filepath.Join(dir, "usr/lib/systemd/system/runonce.service")),
		tool(ctx, "dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", dir, filepath.Join(to, "later.deb")))
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, "dpkg-deb", "-f", filepath.Join(to, "later.deb"), "Version").Output()
	if err != nil {
		return fmt.Errorf("reading the version of the later package: %w", err)
	}
	return tool(ctx, "env", "-C", b.root, "ARCH=amd64", "VERSION="+strings.TrimSpace(string(version)), "TREE="+filepath.Join(dir, "usr"),
		filepath.Join(b.root, ".cache/bin/nfpm"), "package", "-f", "packaging/nfpm.yaml", "-p", "rpm", "-t", filepath.Join(to, "later.rpm"))
}

// debianTests adds the tests and the unit that runs them in every boot.
func (b builder) debianTests(ctx context.Context, tree string) error {
	program, err := b.compile(ctx, "debian.test", "test", "./hack/vm/debian")
	if err != nil {
		return err
	}
	source := filepath.Join(b.root, "hack/vm/debian")
	body, err1 := os.ReadFile(program)
	script, err2 := os.ReadFile(filepath.Join(source, "tests.sh"))
	unit, err3 := os.ReadFile(filepath.Join(source, "vm-tests.service"))
	return errors.Join(err1, err2, err3, put(tree, "srv/tests/debian.test", body, 0o755),
		put(tree, "srv/tests/tests.sh", script, 0o755), put(tree, "etc/systemd/system/vm-tests.service", unit, 0o644))
}

// debianImages adds archives of images: one where the machine's pods find it, with the name that
// the example uses, and one for the test of the archive.
func (b builder) debianImages(ctx context.Context, tree string) error {
	const page = "the page of the example\n"
	if _, err := testimages.Write(ctx, filepath.Join(tree, "srv/images"), "box"); err != nil {
		return err
	}
	program, err := testimages.Program(ctx, b.root, "box")
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	err = ociimage.Build(&archive, ociimage.Image{
		Ref: "docker.io/library/nginx:1.27",
		Files: []ociimage.File{
			{Path: "/bin/box", Mode: 0o755, Body: program},
			{Path: "/www/index.html", Body: []byte(page)},
		},
		Config: v1.ImageConfig{Entrypoint: []string{"/bin/box", "web", "-addr", ":80"}},
	})
	return errors.Join(err, put(tree, "var/lib/runonce/images/nginx.tar", archive.Bytes(), 0o644))
}

// addToDisk copies a tree of files to a disk, which need not be mounted for that.
func addToDisk(ctx context.Context, disk, tree string) error {
	var commands strings.Builder
	err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(tree, path)
		switch {
		case err != nil || relErr != nil || name == ".":
		case e.IsDir():
			fmt.Fprintf(&commands, "cd /\nmkdir %s\n", name)
		default:
			fmt.Fprintf(&commands, "cd /%s\nrm %s\nwrite %s %s\n", filepath.Dir(name), e.Name(), path, e.Name())
		}
		return errors.Join(err, relErr)
	})
	commands.WriteString("cd /etc/systemd/system/cloud-init.target.wants\nsymlink vm-tests.service ../vm-tests.service\n")
	cmd := exec.CommandContext(ctx, "debugfs", "-w", "-f", "-", disk)
	cmd.Stdin = strings.NewReader(commands.String())
	out, runErr := cmd.CombinedOutput()
	if err := errors.Join(err, runErr); err != nil {
		return fmt.Errorf("adding files to the disk: %w\n%s", err, out)
	}
	return nil
}

// put writes a file of a tree.
func put(tree, name string, body []byte, mode fs.FileMode) error {
	path := filepath.Join(tree, name)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, mode))
}

func tool(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
