package manifests

import "testing"

// TestStreams: the only container of a pod gets an input and a terminal, which makes another version of the pod; several
// containers are left alone.
func TestStreams(t *testing.T) {
	t.Parallel()
	const one = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: c, image: x}]}\n"
	const two = "apiVersion: v1\nkind: Pod\nmetadata: {name: two}\nspec: {containers: [{name: c, image: x}, {name: d, image: x}]}\n"
	uids := map[string]string{}
	for _, tt := range []struct {
		name                   string
		o                      Options
		stdin, stdinOnce, term bool
	}{
		{"neither", Options{Terminal: true}, false, false, false},
		{"input", Options{Stream: true}, true, true, false},
		{"terminal", Options{Stream: true, Terminal: true}, true, true, true},
	} {
		set, err := read(t.Context(), tt.o, func(visit func(inputFile)) { inputFS(dir("one.yaml", one, "two.yaml", two), visit) })
		if err != nil {
			t.Fatal(err)
		}
		c := set.Pods[0].Spec.Containers[0]
		if c.Stdin != tt.stdin || c.StdinOnce != tt.stdinOnce || c.TTY != tt.term {
			t.Errorf("%s: stdin %t, stdinOnce %t, tty %t", tt.name, c.Stdin, c.StdinOnce, c.TTY)
		}
		if before, ok := uids[string(set.Pods[0].UID)]; ok {
			t.Errorf("%s: the same UID as %s", tt.name, before)
		}
		uids[string(set.Pods[0].UID)] = tt.name
		if c := set.Pods[1].Spec.Containers[0]; c.Stdin || c.TTY {
			t.Errorf("%s: one of two containers: stdin %t, tty %t", tt.name, c.Stdin, c.TTY)
		}
	}
}
