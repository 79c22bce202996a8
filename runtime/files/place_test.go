package files

import (
	"errors"
	"testing"
)

// TestPlace: the rules of "docker cp" for what a target stands for.
func TestPlace(t *testing.T) {
	t.Parallel()
	file, archive := Top{Base: "f"}, Top{Archive: true}
	for _, tt := range []struct {
		name  string
		top   Top
		dir   bool
		at    Kind
		slash bool
		into  bool
		err   error
	}{
		{name: "a file to a new name", top: file},
		{name: "a file to a directory that does not exist", top: file, slash: true, err: errNoDirectory},
		{name: "a file over a file", top: file, at: File},
		{name: "a file over a file that is called a directory", top: file, at: File, slash: true, err: errNotDirectory},
		{name: "a file into a directory", top: file, at: Directory, into: true},
		{name: "a file over a device", top: file, at: Special, err: errOntoSpecial},
		{name: "a directory to a new name", top: file, dir: true},
		{name: "a directory to a new name with a slash", top: file, dir: true, slash: true},
		{name: "a directory over a file", top: file, dir: true, at: File, err: errOntoFile},
		{name: "a directory into a directory", top: file, dir: true, at: Directory, into: true},
		{name: "a directory over a device", top: file, dir: true, at: Special, err: errOntoSpecial},
		{name: "an archive into a directory", top: archive, dir: true, at: Directory, into: true},
		{name: "an archive to nothing", top: archive, dir: true, err: errNoDirectory},
		{name: "an archive over a file", top: archive, dir: true, at: File, err: errNotDirectory},
	} {
		into, err := place(tt.top, tt.dir, tt.at, tt.slash)
		if into != tt.into || !errors.Is(err, tt.err) {
			t.Errorf("%s: %t, %v, want %t, %v", tt.name, into, err, tt.into, tt.err)
		}
	}
}

// TestTopOf: what the end of a path says about a source.
func TestTopOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]Top{
		"a": {Base: "a"}, "/a/b": {Base: "b"}, "a/b/": {Base: "b"}, "a/.": {Base: "a", Contents: true}, "a/b/./": {Base: "b"},
		".": {Base: "/", Contents: true}, "./": {Base: "/", Contents: true}, "/": {Base: "/", Contents: true}, "..": {Base: "/", Contents: true},
		"../a": {Base: "a"}, "a/..": {Base: "/", Contents: true}, "a.": {Base: "a."}, "a/..b": {Base: "..b"}, "": {Base: "/", Contents: true},
	} {
		if got := TopOf(path); got != want {
			t.Errorf("%q: %+v, want %+v", path, got, want)
		}
	}
}
