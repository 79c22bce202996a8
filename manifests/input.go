package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/runonce/runonce/manifests/decode"
)

// inputFile is one file of the input, or why it is not read.
type inputFile struct {
	name   string // the path as the user wrote it, or below that
	data   []byte
	remote bool // fetched from a URL
	// problems say why the file cannot be read, as errors, or is left out, as warnings. data
	// is nil then.
	problems Diagnostics
}

// inputPaths reads files, directories, http and https URLs and "-" in the given order.
func inputPaths(ctx context.Context, paths []string, o Options) iter.Seq[inputFile] {
	return func(yield func(inputFile) bool) {
		urls := 0
		for _, p := range paths {
			if isURL(p) {
				urls++
			}
		}
		if o.SHA256 != "" && urls != 1 {
			yield(failed("sha256 "+o.SHA256, fmt.Sprintf("is the digest of one URL, but %d are given", urls), ""))
			return
		}
		for _, p := range paths {
			if !inputPath(ctx, p, o, yield) {
				return
			}
		}
	}
}

func inputPath(ctx context.Context, p string, o Options, yield func(inputFile) bool) bool {
	if p == "-" {
		return yield(stream("<stdin>", o.Stdin))
	}
	if isURL(p) {
		return yield(fetch(ctx, p, o))
	}
	info, err := os.Stat(p)
	if err != nil {
		return yield(failed(p, reason(err), ""))
	}
	switch {
	case info.IsDir():
		d := dirReader{fsys: dirFS(p), root: strings.TrimRight(p, "/"), o: o, yield: yield}
		if d.root == "" {
			d.root = "/"
		}
		return d.dir(ctx, ".")
	case info.Mode().IsRegular():
		return yield(readFile(fileFS{}, p, p))
	case strings.HasPrefix(p, "/dev/fd/"), p == "/dev/stdin":
		// A pipe, such as that of the shell's <(command).
		f, err := os.Open(p)
		if err != nil {
			return yield(failed(p, reason(err), ""))
		}
		defer func() { _ = f.Close() }()
		return yield(stream(p, f))
	}
	return yield(failed(p, "is "+fileKind(info.Mode())+", not a file or directory", "pass it on standard input, with - as the path"))
}

// inputFS reads the files of a directory.
func inputFS(ctx context.Context, fsys fs.FS, o Options) iter.Seq[inputFile] {
	return func(yield func(inputFile) bool) {
		d := dirReader{fsys: fsys, o: o, yield: yield}
		d.dir(ctx, ".")
	}
}

// dirReader reads the files of a directory in byte order of their names.
type dirReader struct {
	fsys  fs.FS
	root  string
	o     Options
	yield func(inputFile) bool
}

func (d *dirReader) dir(ctx context.Context, dir string) bool {
	entries, err := fs.ReadDir(d.fsys, dir)
	if err != nil && !d.yield(failed(d.name(dir), reason(err), "")) {
		return false
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return d.yield(failed(d.name(dir), err.Error(), ""))
		}
		if !d.entry(ctx, path.Join(dir, e.Name()), e) {
			return false
		}
	}
	return true
}

func (d *dirReader) entry(ctx context.Context, p string, e fs.DirEntry) bool {
	name := d.name(p)
	if strings.HasPrefix(e.Name(), "..") {
		return true // the versions of a mounted ConfigMap have such names
	}
	if why := leftOut(e.Name()); why != "" {
		return d.yield(skipped(name, why, ""))
	}
	info, err := fs.Stat(d.fsys, p)
	if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink != 0 {
		return d.yield(failed(name, "is a broken symbolic link", ""))
	}
	if err != nil {
		return d.yield(failed(name, reason(err), ""))
	}
	switch {
	case info.IsDir() && e.IsDir() && d.o.Recursive:
		return d.dir(ctx, p)
	case info.IsDir() && d.o.Recursive:
		return d.yield(skipped(name, "link to a directory is not followed", ""))
	case info.IsDir():
		return d.yield(skipped(name, "directory is not read", "use -R to read subdirectories"))
	case !info.Mode().IsRegular():
		return d.yield(skipped(name, fileKind(info.Mode())+" is not read", ""))
	}
	return d.yield(readFile(d.fsys, p, name))
}

// leftOut says why a directory entry of this name is not read as a manifest.
func leftOut(name string) string {
	if strings.HasPrefix(name, ".") {
		return "hidden file is not read"
	}
	for _, suffix := range []string{"~", ".bak", ".swp"} {
		if strings.HasSuffix(name, suffix) {
			return "backup file is not read"
		}
	}
	return ""
}

func (d *dirReader) name(p string) string {
	if d.root != "" {
		p = path.Join(d.root, p)
	}
	return p
}

func readFile(fsys fs.FS, p, name string) inputFile {
	f, err := fsys.Open(p)
	if err != nil {
		return failed(name, reason(err), "")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return failed(name, reason(err), "")
	}
	if !info.Mode().IsRegular() {
		return failed(name, fileKind(info.Mode())+" is not read", "")
	}
	return stream(name, f)
}

// stream reads to the end, but no more than the limit.
func stream(name string, r io.Reader) inputFile {
	if r == nil {
		return failed(name, "there is no standard input", "")
	}
	data, err := io.ReadAll(io.LimitReader(r, decode.MaxBytes+1))
	if err != nil {
		return failed(name, reason(err), "")
	}
	if len(data) > decode.MaxBytes {
		return failed(name, decode.TooLarge, "")
	}
	return inputFile{name: quoteOdd(name), data: data}
}

func failed(name, message, hint string) inputFile {
	name = quoteOdd(name)
	return inputFile{name: name, problems: Diagnostics{{File: name, Message: message, Hint: hint, Severity: SeverityError}}}
}

func skipped(name, message, hint string) inputFile {
	f := failed(name, message, hint)
	f.problems[0].Severity = SeverityWarning
	return f
}

// quoteOdd quotes a name with characters that cannot be printed.
func quoteOdd(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// dirFS is a directory of the machine. Unlike os.DirFS it opens without blocking, in case a
// file is replaced by a FIFO before it is opened.
type dirFS string

// Open opens a file for reading.
func (d dirFS) Open(name string) (fs.File, error) {
	return fileFS{}.Open(filepath.Join(string(d), name))
}

// Stat follows links.
func (d dirFS) Stat(name string) (fs.FileInfo, error) {
	return os.Stat(filepath.Join(string(d), name))
}

// ReadDir returns the entries in byte order of their names.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return os.ReadDir(filepath.Join(string(d), name))
}

// fileFS opens any path of the machine.
type fileFS struct{}

// Open opens a file for reading.
func (fileFS) Open(name string) (fs.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// reason returns the text of a file system error without the path, which a Diagnostic has.
func reason(err error) string {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return err.Error()
	}
	switch {
	case errors.Is(p.Err, syscall.ELOOP):
		return "is a circular symbolic link"
	case errors.Is(p.Err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(p.Err, fs.ErrPermission):
		return "permission denied"
	}
	return p.Op + ": " + p.Err.Error()
}

func fileKind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m.IsDir():
		return "a directory"
	}
	return "a special file"
}
