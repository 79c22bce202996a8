package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// The archive is to be unpacked in archivePrefix, and packages are installed in packagePrefix.
const (
	archivePrefix = "/usr/local"
	packagePrefix = "/usr"
	// zshDir has the completion for zsh, except on Debian.
	zshDir       = "share/zsh/site-functions"
	debianZshDir = "share/zsh/vendor-completions"
)

// write writes all files of the architecture, whose programs have been built.
func (a *architecture) write(ctx context.Context) error {
	if err := copyProgram(a.program("runonce"), filepath.Join(a.out, "runonce-"+a.arch)); err != nil {
		return err
	}
	bill, err := a.sbom.document(a.version, a.epoch)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.out, a.fileName("cdx.json")), bill, 0o644); err != nil {
		return err
	}
	if err := a.archive(ctx); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := a.packageFile(ctx, format); err != nil {
			return fmt.Errorf("writing the %s package: %w", format, err)
		}
	}
	return nil
}

func (a *architecture) fileName(suffix string) string {
	return fmt.Sprintf("runonce-%s-linux-%s.%s", a.version, a.arch, suffix)
}

// archive writes a tar archive of everything that pods need, but for nft or iptables, and of the converter of compose files.
func (a *architecture) archive(ctx context.Context) error {
	dir, err := a.stage(ctx, "archive", archivePrefix, a.licenses.text())
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"runonce-compose", "runc"} {
		errs = append(errs, copyProgram(a.program(name), filepath.Join(dir, "bin", name)))
	}
	for _, p := range plugins() {
		name := filepath.Base(p)
		errs = append(errs, copyProgram(a.program(name), filepath.Join(dir, "libexec/cni", name)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return a.pack(archive, dir, path)
	})
	if err := errors.Join(err, archive.Close(), compressed.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.out, a.fileName("tar.gz")), packed.Bytes(), 0o644)
}

// pack adds a file. Directories are not in the archive: those of the machine keep their modes.
func (a *architecture) pack(archive *tar.Writer, dir, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	header := tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: a.epoch, Format: tar.FormatPAX}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return errors.Join(err, f.Close())
}

// packageFile writes the Debian or RPM package that packaging/nfpm.yaml describes.
func (a *architecture) packageFile(ctx context.Context, format string) error {
	dir, err := a.stage(ctx, format, packagePrefix, a.copyright)
	if err == nil && format == "deb" {
		err = moveDir(filepath.Join(dir, zshDir), filepath.Join(dir, debianZshDir))
	}
	if err == nil {
		err = a.touch(dir)
	}
	if err != nil {
		return err
	}
	_, err = output(ctx, command{
		dir: a.root, args: []string{a.nfpm, "package", "-f", "packaging/nfpm.yaml", "-p", format, "-t", a.out},
		env: []string{"ARCH=" + a.arch, "VERSION=" + a.version, "TREE=" + dir, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(a.epoch.Unix(), 10)},
	})
	return err
}

// stage installs the program, crun and all that belongs to them below a directory of that name, and returns
// the directory that stands for the prefix.
func (a *architecture) stage(ctx context.Context, name, prefix string, copyright []byte) (string, error) {
	root := filepath.Join(a.work, name)
	_, err := output(ctx, command{
		dir: a.root, args: []string{
			"make", "install", "DESTDIR=" + root, "PREFIX=" + prefix, "PROGRAM=" + a.program("runonce"), "MANUAL=" + a.manual(),
		},
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, prefix)
	manuals, err := filepath.Glob(filepath.Join(dir, "share/man/man*/*"))
	errs := []error{
		err, writeFile(filepath.Join(dir, "share/doc/runonce/copyright"), copyright),
		copyProgram(a.program("crun"), filepath.Join(dir, "libexec/runonce/crun")),
	}
	for _, path := range manuals {
		errs = append(errs, compress(path))
	}
	return dir, errors.Join(errs...)
}

func moveDir(from, to string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(from, to))
}

// touch gives all files the time of the commit.
func (a *architecture) touch(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, a.epoch, a.epoch))
	})
}

// compress replaces a file by PATH.gz.
func compress(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return errors.Join(err, w.Close(), writeFile(path+".gz", packed.Bytes()), os.Remove(path))
}

func writeFile(path string, body []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o644), os.Chmod(path, 0o644))
}

func copyProgram(from, to string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, body, 0o755), os.Chmod(to, 0o755))
}
