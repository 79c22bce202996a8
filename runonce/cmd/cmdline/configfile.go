package cmdline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/runonce/runonce/manifests/decode"
)

// readConfigs reads the configuration files: the one that is named, or else those of the machine,
// in the order in which they count. Those that it could read it returns also with an error.
func readConfigs(name string, machine fs.FS) (docs []decode.Document, err error) {
	names, read := []string{name}, os.ReadFile
	if name == "" {
		read = func(name string) ([]byte, error) { return fs.ReadFile(machine, relative(name)) }
		if names, err = configs(machine); err != nil {
			return nil, err
		}
	}
	var problems decode.Diagnostics
	for _, name := range names {
		data, err := read(name)
		if err != nil {
			return docs, fmt.Errorf("reading the configuration file: %w", err)
		}
		found, wrong := parseConfig(name, data)
		docs, problems = append(docs, found...), append(problems, wrong...)
	}
	return docs, problems.Err()
}

// configs returns DefaultConfig and DefaultConfigs as far as they exist, the latter sorted by name.
func configs(machine fs.FS) (paths []string, err error) {
	if machine == nil {
		return nil, nil
	}
	if _, err := fs.Stat(machine, relative(DefaultConfig)); !errors.Is(err, fs.ErrNotExist) {
		paths = append(paths, DefaultConfig) // reading it says what is wrong with it
	}
	dir, pattern := path.Split(DefaultConfigs)
	entries, err := fs.ReadDir(machine, relative(path.Clean(dir)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the directory of configuration files: %w", err)
	}
	for _, e := range entries { // sorted
		if matches, _ := path.Match(pattern, e.Name()); matches && !e.IsDir() {
			paths = append(paths, dir+e.Name())
		}
	}
	return paths, nil
}

// relative returns an absolute path as file systems want it.
func relative(name string) string { return strings.TrimPrefix(name, "/") }

// parseConfig returns the document of a configuration file, if it has any.
func parseConfig(name string, data []byte) ([]decode.Document, decode.Diagnostics) {
	docs, problems := decode.Split(name, data)
	switch errs := problems.Of(decode.SeverityError); {
	case len(errs) > 0:
		return nil, errs
	case len(docs) > 1:
		return nil, decode.Diagnostics{docs[1].Error("", "a second document", "a configuration file has only one")}
	case len(docs) == 1 && docs[0].Kind("") != decode.Map:
		return nil, decode.Diagnostics{docs[0].Error("", "must be flags and their values, as in timeout: 5m", "")}
	}
	return docs, nil
}
