package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	path   string // for podspec.AnnotationPath, "" if unknown
	data   []byte
	remote bool // fetched from a URL
	// problems say why the file cannot be read, as errors, or is left out, as warnings. data
	// is nil then.
	problems Diagnostics
	// open returns data and problems; nil when they are known.
	open func() ([]byte, Diagnostics)
	size int64 // in bytes, negative if unknown
}

// inputPaths reads files, directories, http and https URLs and "-" in the given order.
func inputPaths(ctx context.Context, paths []string, o Options, visit func(inputFile)) {
	urls := 0
	for _, p := range paths {
		if isURL(p) {
			urls++
		}
	}
	located := func(f inputFile, path string) {
		f.path = Origin(path)
		visit(f)
	}
	if o.SHA256 != "" && urls != 1 {
		visit(failed("sha256 "+o.SHA256, fmt.Sprintf("is the digest of one URL, but %d are given", urls), ""))
		return
	}
	if all := servers(paths); len(o.Header) > 0 && len(all) > 1 {
		visit(failed(strings.Join(all, ", "), "are several servers, of which only one may get the headers", "read the others in another run, or download them first"))
		return
	}
	for _, p := range paths {
		away, ok := elsewhere(p)
		switch {
		case ok:
			visit(away)
		case p == "-":
			located(stream("<stdin>", o.Stdin), p)
		case isURL(p):
			located(fetch(ctx, p, o), p)
		default:
			inputPath(ctx, p, o, func(f inputFile) { located(f, f.path) })
		}
	}
}

// Origin returns what podspec.AnnotationPath says of the pods in a file of the input: its
// absolute path, of a URL only what is not secret, and "-" for standard input or another pipe.
// A symbolic link stays one, so that a release that it points to can replace the one before.
func Origin(p string) string {
	switch {
	case p == "" || p == "-":
		return p
	case isURL(p):
		return Shown(p)
	case isPipe(p):
		return "-"
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return "" // the working directory is gone
	}
	return abs
}

// isPipe says whether it is the path of a descriptor, such as that of the shell's <(command).
func isPipe(p string) bool { return strings.HasPrefix(p, "/dev/fd/") || p == "/dev/stdin" }

func inputPath(ctx context.Context, p string, o Options, visit func(inputFile)) {
	info, err := os.Stat(p)
	switch {
	case err != nil:
		visit(failed(p, reason(err), ""))
	case info.IsDir():
		d := dirReader{recursive: o.Recursive, visit: visit}
		d.dir(ctx, path.Clean(p))
	case info.Mode().IsRegular():
		visit(onDisk(p, info.Size()))
	case isPipe(p):
		visit(onDisk(p, -1))
	default:
		visit(failed(p, "is "+fileKind(info.Mode())+", not a file or directory", "pass it on standard input, with - as the path"))
	}
}

// dirReader reads the files of a directory in byte order of their names.
type dirReader struct {
	recursive bool
	visit     func(inputFile)
}

func (d *dirReader) dir(ctx context.Context, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		d.visit(failed(dir, reason(err), ""))
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			d.visit(failed(dir, err.Error(), ""))
			return
		}
		d.entry(ctx, path.Join(dir, e.Name()), e)
	}
}

func (d *dirReader) entry(ctx context.Context, p string, e fs.DirEntry) {
	if strings.HasPrefix(e.Name(), "..") {
		return // the versions of a mounted ConfigMap have such names
	}
	if why := leftOut(e.Name()); why != "" {
		d.visit(skipped(p, why, ""))
		return
	}
	info, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink != 0:
		d.visit(failed(p, "is a broken symbolic link", ""))
	case err != nil:
		d.visit(failed(p, reason(err), ""))
	case info.IsDir() && e.IsDir() && d.recursive:
		d.dir(ctx, p)
	case info.IsDir() && d.recursive:
		d.visit(skipped(p, "link to a directory is not followed", ""))
	case info.IsDir():
		d.visit(skipped(p, "directory is not read", "use -R to read subdirectories"))
	case !info.Mode().IsRegular():
		d.visit(skipped(p, fileKind(info.Mode())+" is not read", ""))
	default:
		d.visit(onDisk(p, info.Size()))
	}
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

// onDisk is a file of a directory, or one that is named itself; with a negative size a pipe of this
// process.
func onDisk(p string, size int64) inputFile {
	return inputFile{name: quoteOdd(p), path: p, size: size, open: func() ([]byte, Diagnostics) {
		flags := os.O_RDONLY
		if size >= 0 {
			flags |= syscall.O_NONBLOCK // in case it was replaced by a FIFO
		}
		f, err := os.OpenFile(p, flags, 0)
		if err != nil {
			return nil, failed(p, reason(err), "").problems
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		switch {
		case err != nil:
			return nil, failed(p, reason(err), "").problems
		case size >= 0 && !info.Mode().IsRegular():
			return nil, failed(p, fileKind(info.Mode())+" is not read", "").problems
		}
		return readAll(p, f, info.Size())
	}}
}

// stream is standard input.
func stream(name string, r io.Reader) inputFile {
	if r == nil {
		return failed(name, "there is no standard input", "")
	}
	return inputFile{name: quoteOdd(name), path: name, size: -1, open: func() ([]byte, Diagnostics) {
		return readAll(name, r, 0)
	}}
}

// readAll reads to the end, but no more than the limit. The size is what is expected.
func readAll(name string, r io.Reader, size int64) ([]byte, Diagnostics) {
	var b bytes.Buffer
	b.Grow(int(min(size, decode.MaxBytes)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, decode.MaxBytes+1)); err != nil {
		return nil, failed(name, reason(err), "").problems
	}
	if b.Len() > decode.MaxBytes {
		return nil, failed(name, decode.TooLarge, "").problems
	}
	return b.Bytes(), nil
}

func failed(path, message, hint string) inputFile {
	name := quoteOdd(path)
	return inputFile{name: name, path: path, problems: Diagnostics{{File: name, Message: message, Hint: hint, Severity: SeverityError}}}
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
