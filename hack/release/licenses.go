package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licenses is the texts of licenses and the names of what each is of.
type licenses struct {
	of map[string][]string
}

// licenseFile matches the names of files that must accompany copies of a program.
var licenseFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|copyright|notice|authors\.md$)`)

// add adds the licenses of all modules of a program and of Go's library.
func (l *licenses) add(ctx context.Context, info *debug.BuildInfo, s source, arch string) error {
	dirs, err := moduleDirs(ctx, s, arch)
	if err != nil {
		return err
	}
	goroot, err := output(ctx, command{dir: s.dir, args: []string{"go", "env", "GOROOT"}})
	if err != nil {
		return err
	}
	errs := []error{l.addFrom(info.GoVersion, strings.TrimSpace(string(goroot)))}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		name := strings.TrimSuffix(m.Path+" "+m.Version, " (devel)")
		if dirs[m.Path] == "" {
			errs = append(errs, fmt.Errorf("no directory of module %s", name))
			continue
		}
		errs = append(errs, l.addFrom(name, dirs[m.Path]))
	}
	return errors.Join(errs...)
}

// moduleDirs returns the directories of all modules that a program is built from.
func moduleDirs(ctx context.Context, s source, arch string) (map[string]string, error) {
	args := append([]string{"go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}"}, s.flags...)
	out, err := output(ctx, command{dir: s.dir, env: append([]string{"GOOS=linux", "GOARCH=" + arch}, s.env...), args: append(args, s.pkg)})
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			dirs[path] = dir
		}
	}
	return dirs, err
}

// addFrom adds the licenses in a directory. Without any, the files would not be a lawful copy.
func (l *licenses) addFrom(name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		l.put(name, string(text))
		found = true
	}
	if !found {
		return fmt.Errorf("no license of %s in %s", name, dir)
	}
	return nil
}

func (l *licenses) put(name, text string) {
	if l.of == nil {
		l.of = map[string][]string{}
	}
	if !slices.Contains(l.of[text], name) {
		l.of[text] = append(l.of[text], name)
	}
}

// text returns all licenses, each with the names of what it is of.
func (l *licenses) text() []byte {
	parts := make([]string, 0, len(l.of))
	for text, names := range l.of {
		slices.Sort(names)
		parts = append(parts, strings.Join(names, "\n")+"\n\n"+strings.TrimSpace(text)+"\n")
	}
	slices.Sort(parts)
	line := strings.Repeat("=", 80) + "\n"
	return []byte("runonce is under the Apache License 2.0. The programs here also contain the following software.\n" +
		line + strings.Join(parts, line))
}
