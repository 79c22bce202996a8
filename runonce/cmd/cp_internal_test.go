package cmd

import (
	"strings"
	"testing"
)

// TestParsePath: what is a path of this machine, as for "docker cp".
func TestParsePath(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]containerPath{
		"web:/x": {pod: "web", path: "/x"}, "web:x": {pod: "web", path: "x"}, "ns/web:/x:y": {pod: "ns/web", path: "/x:y"},
		"pod/web:/": {pod: "pod/web", path: "/"}, "web:-": {pod: "web", path: "-"}, "web: ": {pod: "web", path: " "},
		"x": {path: "x"}, "-": {path: "-"}, "/x:y": {path: "/x:y"}, "./x:y": {path: "./x:y"}, "../x:y": {path: "../x:y"}, ".": {path: "."},
		"": {}, ":x": {}, "web:": {}, ":": {},
	} {
		got, err := parsePath(arg)
		if (err != nil) != (want == containerPath{}) || got != want {
			t.Errorf("%q: %+v, %v, want %+v", arg, got, err, want)
		}
	}
}

// FuzzParsePath: a path of this machine is as it was given, and any other is a pod and a path, neither of them empty.
func FuzzParsePath(f *testing.F) {
	for _, arg := range []string{"web:/x", "ns/web:x", "./x:y", "/x:y", ":", "", "-", "a:b:c", "web:\x00", "\xff:\n"} {
		f.Add(arg)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		got, err := parsePath(arg)
		switch {
		case err != nil:
		case got.pod == "":
			if got.path != arg || arg == "" || strings.Contains(arg, ":") && arg[0] != '/' && arg[0] != '.' {
				t.Errorf("%q is the path %q of this machine", arg, got.path)
			}
		case got.pod+":"+got.path != arg || got.path == "" || strings.Contains(got.pod, ":") || arg[0] == '/' || arg[0] == '.':
			t.Errorf("%q is %+v", arg, got)
		}
		if err == nil && got.String() != arg {
			t.Errorf("%q is printed as %q", arg, got)
		}
	})
}
