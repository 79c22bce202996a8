// Package source turns the paths that a user gives into the bytes of manifest files,
// without ever blocking on something that is not a file.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/runonce/runonce/manifests/fault"
)

// File is one file of the input, or what keeps it from being read.
type File struct {
	// Name is the file's path as the user would write it.
	Name string
	Data []byte
	// Remote says that the file was fetched from a URL.
	Remote bool
	// Faults say why the file is not read, as errors, or that it is left out, as
	// warnings. Data is nil then.
	Faults fault.List
}

// Options say how paths are read.
type Options struct {
	// Recursive also reads the directories below a directory.
	Recursive bool
	// Stdin is what "-" reads.
	Stdin io.Reader
	// Limit bounds each file, in bytes.
	Limit int64
	// SHA256 is the digest, in hex, that what a URL holds must have; "" for any.
	SHA256 string
	// Client fetches URLs; nil is http.DefaultClient.
	Client *http.Client
}

// Paths reads files, directories, http and https URLs and "-" in the given order.
func Paths(ctx context.Context, paths []string, o Options) iter.Seq[File] {
	return func(yield func(File) bool) {
		if urls := countURLs(paths); o.SHA256 != "" && urls != 1 {
			yield(failed("sha256 "+o.SHA256, fmt.Sprintf("pins one URL, but %d are given", urls), ""))
			return
		}
		for _, p := range paths {
			if !one(ctx, p, o, yield) {
				return
			}
		}
	}
}

func countURLs(paths []string) int {
	n := 0
	for _, p := range paths {
		if isURL(p) {
			n++
		}
	}
	return n
}

func one(ctx context.Context, p string, o Options, yield func(File) bool) bool {
	if p == "-" {
		return yield(stream("<stdin>", o.Stdin, o.Limit))
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
		w := walker{fsys: dirFS(p), root: strings.TrimRight(p, "/"), o: o, yield: yield}
		if w.root == "" {
			w.root = "/"
		}
		return w.dir(ctx, ".")
	case info.Mode().IsRegular():
		return yield(file(fileFS{}, p, p, o.Limit))
	case strings.HasPrefix(p, "/dev/fd/"), p == "/dev/stdin":
		// What the shell's <(command) hands over: a pipe with a writer at its end.
		f, err := os.Open(p)
		if err != nil {
			return yield(failed(p, reason(err), ""))
		}
		defer func() { _ = f.Close() }()
		return yield(stream(p, f, o.Limit))
	}
	return yield(failed(p, "is "+kind(info.Mode())+", not a file or directory", "pipe it in and give - as the path"))
}

// FS reads the files of a directory.
func FS(ctx context.Context, fsys fs.FS, o Options) iter.Seq[File] {
	return func(yield func(File) bool) {
		w := walker{fsys: fsys, o: o, yield: yield}
		w.dir(ctx, ".")
	}
}

// walker reads the files of a directory in byte order of their names.
type walker struct {
	fsys  fs.FS
	root  string
	o     Options
	yield func(File) bool
}

func (w *walker) dir(ctx context.Context, dir string) bool {
	entries, err := fs.ReadDir(w.fsys, dir)
	if err != nil && !w.yield(failed(w.name(dir), reason(err), "")) {
		return false
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return w.yield(failed(w.name(dir), err.Error(), ""))
		}
		if !w.entry(ctx, path.Join(dir, e.Name()), e) {
			return false
		}
	}
	return true
}

func (w *walker) entry(ctx context.Context, p string, e fs.DirEntry) bool {
	name := w.name(p)
	if strings.HasPrefix(e.Name(), "..") {
		return true // a mounted ConfigMap keeps its versions behind such names
	}
	if why := leftOut(e.Name()); why != "" {
		return w.yield(skipped(name, why, ""))
	}
	info, err := fs.Stat(w.fsys, p)
	if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink != 0 {
		return w.yield(failed(name, "is a link that leads nowhere", ""))
	}
	if err != nil {
		return w.yield(failed(name, reason(err), ""))
	}
	switch {
	case info.IsDir() && e.IsDir() && w.o.Recursive:
		return w.dir(ctx, p)
	case info.IsDir() && w.o.Recursive:
		return w.yield(skipped(name, "link to a directory is not followed", ""))
	case info.IsDir():
		return w.yield(skipped(name, "directory is not read", "use -R to read directories in directories"))
	case !info.Mode().IsRegular():
		return w.yield(skipped(name, kind(info.Mode())+" is not read", ""))
	}
	return w.yield(file(w.fsys, p, name, w.o.Limit))
}

// leftOut says why a directory's entry of this name is no manifest.
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

func (w *walker) name(p string) string {
	if w.root != "" {
		p = path.Join(w.root, p)
	}
	return p
}

func file(fsys fs.FS, p, name string, limit int64) File {
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
		return failed(name, kind(info.Mode())+" is not read", "")
	}
	if info.Size() > limit {
		return tooLarge(name, limit)
	}
	return stream(name, f, limit)
}

// stream reads to the end, but never more than the limit.
func stream(name string, r io.Reader, limit int64) File {
	if r == nil {
		return failed(name, "there is no standard input", "")
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return failed(name, reason(err), "")
	}
	if int64(len(data)) > limit {
		return tooLarge(name, limit)
	}
	return File{Name: printable(name), Data: data}
}

func tooLarge(name string, limit int64) File {
	return failed(name, "larger than "+size(limit), "")
}

func size(limit int64) string {
	if limit%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", limit>>20)
	}
	return fmt.Sprintf("%d bytes", limit)
}

func failed(name, message, hint string) File {
	name = printable(name)
	return File{Name: name, Faults: fault.List{{File: name, Message: message, Hint: hint, Severity: fault.Error}}}
}

func skipped(name, message, hint string) File {
	f := failed(name, message, hint)
	f.Faults[0].Severity = fault.Warning
	return f
}

// printable quotes a name that would disturb a line of text.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}
