package testimages

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runonce/runonce/internal/testing/ociimage"
)

// Packages finds files of Debian's packages.
type Packages struct {
	roots []string
}

// Debian returns the packages that hack/setup.sh unpacks into .cache/debian and, where it does not, those that are
// installed on this machine. root is the project's directory.
func Debian(root string) Packages {
	return Packages{roots: []string{filepath.Join(root, ".cache", "debian"), "/"}}
}

// Files returns the files that match patterns (see filepath.Glob), with all files of a directory. It is an error if
// nothing matches a pattern.
func (p Packages) Files(patterns ...string) ([]ociimage.File, error) {
	var files []ociimage.File
	for _, pattern := range patterns {
		root, found, err := p.glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			all, err := tree(root, path)
			if err != nil {
				return nil, fmt.Errorf("reading %s of a Debian package: %w", pattern, err)
			}
			files = append(files, all...)
		}
	}
	return files, nil
}

// glob returns the first root that has what the pattern matches. A file of /usr may be without it in its package.
func (p Packages) glob(pattern string) (root string, found []string, err error) {
	for _, root := range p.roots {
		for _, pattern := range []string{pattern, strings.TrimPrefix(pattern, "/usr")} {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return "", nil, err
			}
			if len(found) > 0 {
				return root, found, nil
			}
		}
	}
	return "", nil, fmt.Errorf("no Debian package has %s (make setup-test installs or unpacks them)", pattern)
}

// tree reads a file, or all files of a directory. Links are followed.
func tree(root, path string) ([]ociimage.File, error) {
	var files []ociimage.File
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(name)
		// A link to a file that another package would have.
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := os.ReadFile(name)
		files = append(files, ociimage.File{Path: "/" + strings.TrimPrefix(name[len(root):], "/"), Mode: info.Mode().Perm(), Body: body})
		return err
	})
	return files, err
}

// Libraries returns the dynamic loader and the libraries that the programs and libraries among the files need.
func (p Packages) Libraries(files []ociimage.File) ([]ociimage.File, error) {
	var libraries []ociimage.File
	seen := map[string]bool{}
	for todo := slices.Clone(files); len(todo) > 0; todo = todo[1:] {
		needed, err := imports(todo[0].Body)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", todo[0].Path, err)
		}
		for _, name := range needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			pattern := name
			if !filepath.IsAbs(name) {
				pattern = "/usr/lib/*-linux-gnu/" + name
			}
			found, err := p.Files(pattern)
			if err != nil {
				return nil, fmt.Errorf("finding a library of %s: %w", todo[0].Path, err)
			}
			libraries, todo = append(libraries, found[0]), append(todo, found[0])
		}
	}
	return libraries, nil
}

// imports returns the path of the loader and the names of the libraries in a program or library, nothing for other
// files.
func imports(body []byte) ([]string, error) {
	if !bytes.HasPrefix(body, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	names, err := f.ImportedLibraries()
	if interp := f.Section(".interp"); interp != nil && err == nil {
		var path []byte
		path, err = interp.Data()
		names = append(names, string(bytes.TrimRight(path, "\x00")))
	}
	return names, err
}
