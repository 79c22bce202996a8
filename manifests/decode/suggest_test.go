package decode

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"image", "imagePullPolicy", "name", "command", "args", "env"}
	for in, want := range map[string]string{
		"imge": "image", "Image": "image", "commnad": "command", "arg": "args", "imagepullpolicy": "imagePullPolicy",
		"xyz": "", "": "", "e": "", "cmomand": "command",
	} {
		if got := Nearest(in, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
	if got := Nearest("imge", append(make([]string, 200), names...)); got != "" {
		t.Errorf("a long list is searched: %q", got)
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"image: {{ .Values.image }}": "looks like an unrendered template: {{ }}",
		"{% if x %}":                 "looks like an unrendered template: {% %}",
		"name: ${NAME}":              "looks like an unrendered template: ${ }",
		"a: <%= x %>":                "looks like an unrendered template: <% %>",
		"echo $HOME {{":              "",
		"plain":                      "",
	} {
		if got := templateHint([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"d/README.md": true, "Makefile": true, "run.sh": true, "pod.yaml": false, "pod.yml.tmpl": false, "pod.json": false,
		"pod": false, "<stdin>": false, "http://host/pod?...": false,
	} {
		if got := Foreign(in) != ""; got != want {
			t.Errorf("%q is foreign: %t", in, got)
		}
	}
}
