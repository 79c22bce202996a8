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
	"strings"
)

// archiveBin is where the units expect the program; it is in the archive, which is to be unpacked
// in /usr/local. Packages have their programs in packageBin.
const (
	archiveBin = "/usr/local/bin/"
	packageBin = "/usr/bin/"
)

// build writes all files of the architecture.
func (a *architecture) build(ctx context.Context) error {
	fmt.Println("release: building the programs for", a.arch)
	if err := a.buildAll(ctx); err != nil {
		return err
	}
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
	if err := a.archive(); err != nil {
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

// archive writes a tar archive of everything that pods need, but for nft or iptables.
func (a *architecture) archive() error {
	dir := filepath.Join(a.work, "archive")
	if err := a.stage(dir, archiveBin, "share/zsh/site-functions", a.licenses.text()); err != nil {
		return err
	}
	errs := []error{copyProgram(a.program("runc"), filepath.Join(dir, "bin/runc"))}
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
	zsh := map[string]string{"deb": "share/zsh/vendor-completions", "rpm": "share/zsh/site-functions"}
	dir := filepath.Join(a.work, format)
	if err := a.stage(dir, packageBin, zsh[format], a.copyright); err != nil {
		return err
	}
	_, err := output(ctx, command{
		dir: a.root, args: []string{a.nfpm, "package", "-f", "packaging/nfpm.yaml", "-p", format, "-t", a.out},
		env: []string{"ARCH=" + a.arch, "VERSION=" + a.version, "TREE=" + dir, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(a.epoch.Unix(), 10)},
	})
	return err
}

// stage writes what the archive and the packages share: the program and all that belongs to it.
func (a *architecture) stage(dir, bin, zsh string, copyright []byte) error {
	manuals, err := filepath.Glob(filepath.Join(a.root, "docs/*.[1-8]"))
	if err != nil {
		return err
	}
	units, err := filepath.Glob(filepath.Join(a.root, "packaging/systemd/*.*"))
	if err != nil {
		return err
	}
	if len(manuals) == 0 || len(units) == 0 {
		return errors.New("no manual pages or no units")
	}
	errs := []error{
		copyProgram(a.program("runonce"), filepath.Join(dir, "bin/runonce")),
		writeFile(filepath.Join(dir, "share/doc/runonce/copyright"), copyright),
	}
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/runonce", "fish": "share/fish/vendor_completions.d/runonce.fish", "zsh": zsh + "/_runonce",
	} {
		text, err := os.ReadFile(filepath.Join(a.root, "runonce/cmd/completion."+shell))
		errs = append(errs, err, writeFile(filepath.Join(dir, name), text))
	}
	for _, path := range manuals {
		text, err := os.ReadFile(path)
		name := filepath.Base(path)
		errs = append(errs, err, writeCompressed(filepath.Join(dir, "share/man/man"+name[len(name)-1:], name+".gz"), text))
	}
	for _, path := range units {
		text, err := os.ReadFile(path)
		unit := strings.ReplaceAll(string(text), archiveBin, bin)
		errs = append(errs, err, writeFile(filepath.Join(dir, "lib/systemd/system", filepath.Base(path)), []byte(unit)))
	}
	return errors.Join(append(errs, a.touch(dir))...)
}

// touch gives all files the time of the commit.
func (a *architecture) touch(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, a.epoch, a.epoch))
	})
}

func writeCompressed(path string, text []byte) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return writeFile(path, packed.Bytes())
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
