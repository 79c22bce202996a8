package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/runonce"
)

// TestGitHubPlaces: paths are relative to the workspace, and what is no file is named in the message.
func TestGitHubPlaces(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ workspace, source, want string }{
		{"/work", "/work/pods/a.yaml:3", "file=pods/a.yaml,line=3,title="},
		{"/work/", "/work/pods/a:b.yaml:3", "file=pods/a%3Ab.yaml,line=3,title="},
		{"/work", "/other/a.yaml:3", "file=/other/a.yaml,line=3,title="},
		{"/work", "/workshop/a.yaml:3", "file=/workshop/a.yaml,line=3,title="},
		{filepath.Dir(wd), "a.yaml:3", "file=" + filepath.Base(wd) + "/a.yaml,line=3,title="},
		{wd, "../a.yaml:3", "file=../a.yaml,line=3,title="},
		{"", "a.yaml:3", "file=a.yaml,line=3,title="},
		{"/work", "<stdin>:3", "::error title=default/web%3A Failed%2C Error::<stdin>:3: 50%25 done%0Athen nothing"},
		{"/work", "https://example.org/a.yaml:3", "::error title=default/web%3A Failed%2C Error::https://example.org/a.yaml:3: 50"},
	} {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = "default", "web"
		pod.Annotations = map[string]string{podspec.AnnotationSource: c.source}
		r := New([]runonce.Result{{Pod: pod, Outcome: runonce.Failed, Reason: "Error", Message: "50% done\nthen nothing"}}, 1, 0)
		var b strings.Builder
		if err := (GitHub{Workspace: c.workspace}).Write(&b, r); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%+v: %s", c, b.String())
		}
	}
}

// TestGitHubFault: what cannot be read has no line.
func TestGitHubFault(t *testing.T) {
	t.Parallel()
	r := Report{Failure: Failure{Faults: decode.Diagnostics{{File: "https://example.org/a.yaml", Message: "not found", Severity: "error"}}}}
	var b strings.Builder
	if err := (GitHub{}).Write(&b, r); err != nil || b.String() != "::error title=manifest::https://example.org/a.yaml: not found\n" {
		t.Errorf("%v, %s", err, b.String())
	}
}

// TestGitHubPrintable: an annotation changes no terminal.
func TestGitHubPrintable(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{}
	pod.Name = "web"
	r := New([]runonce.Result{{Pod: pod, Outcome: runonce.Failed, Reason: "Error", Message: "one \x1b[2J\ntwo"}}, 1, 0)
	var b strings.Builder
	if err := (GitHub{}).Write(&b, r); err != nil || strings.Contains(b.String(), "\x1b") || !strings.Contains(b.String(), "::one \ufffd[2J%0Atwo\n") {
		t.Errorf("%v, %q", err, b.String())
	}
}

// TestGitHubInert: no line of a container's log is a command.
func TestGitHubInert(t *testing.T) {
	t.Parallel()
	in := "::error::x\n  ::set-output name=a::b\n\t::stop-commands::t\nplain :: text\nx ##[warning]y\n##vso[task.setvariable variable=a]b\n"
	want := "| ::error::x\n|   ::set-output name=a::b\n| \t::stop-commands::t\nplain :: text\nx ## [warning]y\n## vso[task.setvariable variable=a]b\n"
	if diff := cmp.Diff(want, inert(in)); diff != "" {
		t.Error(diff)
	}
}

// TestInJob: the variables of the runners.
func TestInJob(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]bool{
		"GITHUB_ACTIONS=true": true, "GITEA_ACTIONS=true": true, "FORGEJO_ACTIONS=true": true, "TF_BUILD=True": true,
		"GITHUB_ACTIONS=": false, "GITHUB_ACTIONS=false": false, "CI=true": false,
	} {
		name, value, _ := strings.Cut(variable, "=")
		got := InJob(func(v string) string {
			if v == name {
				return value
			}
			return ""
		})
		if got != want {
			t.Errorf("%s: %t", variable, got)
		}
	}
}

// TestInertDocuments: no document has a command, and it still says the same.
func TestInertDocuments(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a\n::error::x\nb", "##[error]x", "x ##vso[task.complete]y", "\x1b]0;x\a\u009b2J\u007f", "plain ## [text]"} {
		in := map[string]string{"text": text}
		for name, write := range map[string]func(*strings.Builder) error{
			"JSON": func(b *strings.Builder) error { return JSON(b, in) },
			"YAML": func(b *strings.Builder) error { return YAML(b, in, true) },
		} {
			var b strings.Builder
			var back map[string]string
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			if out := b.String(); inert(out) != out || strings.ContainsFunc(out, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
				t.Errorf("%s of %q: %q", name, text, out)
			}
			if err := yaml.Unmarshal([]byte(b.String()), &back); err != nil || back["text"] != text {
				t.Errorf("%s of %q says %q: %v", name, text, back["text"], err)
			}
		}
	}
}

// TestGitHubOptional: a pod on which the exit code does not depend is a warning.
func TestGitHubOptional(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{}
	pod.Name, pod.Annotations = "lint", map[string]string{podspec.AnnotationOptional: "true"}
	var b strings.Builder
	r := New([]runonce.Result{{Pod: pod, Outcome: runonce.Failed, Reason: "Error", Message: "it has failed"}}, 0, 0)
	if err := (GitHub{}).Write(&b, r); err != nil || !strings.Contains(b.String(), "::warning title=lint%3A Failed%2C Error::it has failed") || !strings.Contains(b.String(), "Error, optional") {
		t.Errorf("%v, %s", err, b.String())
	}
}
