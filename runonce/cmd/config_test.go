package cmd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// withConfig is a machine with the default configuration file and environment variables.
func withConfig(t *testing.T, config string, environ ...string) cmd.IO {
	t.Helper()
	world := noEngine(t)
	world.Environ = func() []string { return environ }
	world.Machine = fstest.MapFS{}
	if config != "" {
		world.Machine = fstest.MapFS{"etc/runonce/config.yaml": {Data: []byte(config)}}
	}
	return world
}

// TestConfigPrecedence: the command line, then the environment, then the file, then the default.
func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("strict: true\noutput: yaml\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const asJSON, asYAML, asTable = `{`, "apiVersion: runonce/v1", "1 pod, no error"
	for _, c := range []struct{ config, environ, args, want string }{
		{want: asTable},
		{config: "output: json\n", want: asJSON},
		{config: "output: json\n", environ: "RUNONCE_OUTPUT=yaml", want: asYAML},
		{config: "output: json\n", environ: "RUNONCE_OUTPUT=yaml", args: "-o table", want: asTable},
		{config: "output: json\n", environ: "RUNONCE_OUTPUT=", want: asJSON},
		{config: "{}\n", environ: "RUNONCE_OUTPUT=json", want: asJSON},
		{config: "# nothing\n", want: asTable},
		{config: "output: table\nvalidate: {output: json}\nrun: {output: wide}\n", want: asJSON},
		{config: "validate: {output: json}\noutput: table\n", want: asJSON},
		{config: "ps: {output: json}\n", want: asTable},
		{config: "timeout: 5m\nrun: {until: ready}\nlogs: true\nlogs: {tail: 5}\n", want: "given twice"},
		{config: "timeout: 5m\nlogs: {tail: 5}\nnode-label: [a=b, c=d]\nrun:\n", want: asTable},
		{config: "output: json\n", args: "--config OWN", want: asYAML},
		{config: "output: json\n", environ: "RUNONCE_CONFIG=OWN", want: asYAML},
		{environ: "RUNONCE_CONFIG=/nosuch", args: "--config OWN", want: asYAML},
		{environ: "RUNONCE_CONFIG=/nosuch", want: "reading the configuration file: open /nosuch: no such file"},
		{args: "--config /nosuch", want: "reading the configuration file: open /nosuch: no such file"},
	} {
		at := strings.NewReplacer("OWN", own)
		world := withConfig(t, c.config, strings.Fields(at.Replace(c.environ))...)
		got := invokeWith(t, world, append(strings.Fields(at.Replace("validate "+c.args)), pod)...)
		if !strings.HasPrefix(got.stdout, c.want) && !strings.Contains(got.stderr, c.want) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestConfigDirectory: files of the directory replace keys of config.yaml and of each other, in the
// order of their names; a file of the command line is the only one.
func TestConfigDirectory(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("strict: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const asJSON, asYAML, asTable = `{`, "apiVersion: runonce/v1", "1 pod, no error"
	const dir = "/etc/runonce/config.d/"
	for name, c := range map[string]struct {
		files      map[string]string // below /etc/runonce
		args, want string
	}{
		"without config.yaml":  {map[string]string{"config.d/a.yaml": "output: json"}, "", asJSON},
		"after config.yaml":    {map[string]string{"config.yaml": "output: json", "config.d/a.yaml": "output: yaml"}, "", asYAML},
		"the last name":        {map[string]string{"config.d/10-b.yaml": "output: yaml", "config.d/9-a.yaml": "output: json"}, "", asJSON},
		"key by key":           {map[string]string{"config.d/a.yaml": "output: json", "config.d/b.yaml": "strict: true"}, "", asJSON},
		"a section stays":      {map[string]string{"config.yaml": "validate: {output: json}", "config.d/a.yaml": "output: yaml"}, "", asJSON},
		"keys of a section":    {map[string]string{"config.yaml": "validate: {output: json}", "config.d/a.yaml": "validate: {strict: true}"}, "", asJSON},
		"an empty file":        {map[string]string{"config.yaml": "output: json", "config.d/a.yaml": "# nothing"}, "", asJSON},
		"other suffixes":       {map[string]string{"config.d/a.conf": "output: json", "config.d/b.yaml~": "output: json", "config.d/c.yaml/d.yaml": "output: json"}, "", asTable},
		"the command line":     {map[string]string{"config.d/a.yaml": "output: json"}, "--config " + own, asTable},
		"no file":              {map[string]string{"config.d/a.yaml": "output: json"}, "--config /dev/null", asTable},
		"a list is replaced":   {map[string]string{"config.yaml": "env-file: [/nosuch]", "config.d/a.yaml": "env-file: [/dev/null]"}, "", asTable},
		"unknown key":          {map[string]string{"config.yaml": "rm: true", "config.d/a.yaml": "rm: true\ntimeot: 5m"}, "", dir + "a.yaml:2: timeot: unknown key"},
		"not YAML":             {map[string]string{"config.d/a.yaml": "rm: ["}, "", dir + "a.yaml:1: not valid YAML"},
		"in both":              {map[string]string{"config.yaml": "rmm: true", "config.d/a.yaml": "prnue: true"}, "", "the input has 2 errors"},
		"which value":          {map[string]string{"config.yaml": "output: json", "config.d/a.yaml": "output: jsn"}, "", dir + `a.yaml:1: --output "jsn": must be one of`},
		"the format of errors": {map[string]string{"config.yaml": "output: json", "config.d/a.yaml": "rm: ["}, "", asJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world, machine := withConfig(t, ""), fstest.MapFS{}
			for file, text := range c.files {
				machine["etc/runonce/"+file] = &fstest.MapFile{Data: []byte(text + "\n")}
			}
			world.Machine = machine
			got := invokeWith(t, world, append(strings.Fields("validate "+c.args), pod)...)
			if !strings.HasPrefix(got.stdout, c.want) && (got.code != 2 || !strings.Contains(got.stderr, c.want)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestConfigMistakes: every mistake is found, with its place.
func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	const file = "/etc/runonce/config.yaml:"
	for _, c := range []struct{ config, environ, want string }{
		{"timeot: 5m\n", "", file + "1: timeot: unknown key (did you mean timeout?)"},
		{"prnue: true\n", "", file + "1: prnue: unknown key\n"},
		{"# a comment\nrun:\n  tail: 5\n", "", file + "3: run.tail: unknown key"},
		{"config: other\n", "", file + "1: config: unknown key"},
		{"all: true\n", "", file + "1: all: unknown key (did you mean pull?)"}, // the same every time
		{"o: json\n", "", file + "1: o: unknown key"},
		{"run.timeout: 5m\n", "", file + "1: run.timeout: unknown key"},
		{"timeout: 5\n", "", file + `1: timeout: "5": a duration needs a unit, for example 5s`},
		{"run: {timeout: soon}\n", "", file + `1: run.timeout: "soon": must be a duration`},
		{"parallel: two\n", "", file + `1: parallel: "two": must be a whole number`},
		{"parallel: [2]\n", "", file + "1: parallel: takes one value, not a list"},
		{"rm: maybe\n", "", file + `1: rm: "maybe": takes no value, or true or false`},
		{"node-name: 7\n", "", file + "1: node-name: 7 is not text: quote it"},
		{"node-label: [a=b, {c: d}]\n", "", file + "1: node-label: must be a value, not a map or list"},
		{"node-label: {c: d}\n", "", file + "1: node-label: must be a value, not a map or list"},
		{"timeout:\n", "", file + "1: timeout: has no value"},
		{"- timeout\n", "", file + "1: must be flags and their values"},
		{"rm: true\n---\nrm: false\n", "", file + "3: a second document"},
		{"rm: [\n", "", file + "1: not valid YAML"},
		{"rm: true\noutput: jsn\n", "", file + `2: --output "jsn": must be one of table, wide, json, yaml`},
		{"until: redy\n", "", file + `1: --until "redy": must be one of`},
		{"", "RUNONCE_UNTIL=redy", `RUNONCE_UNTIL: --until "redy": must be one of`},
		{"", "RUNONCE_TIMEOUT=5", `RUNONCE_TIMEOUT: "5": a duration needs a unit`},
		{"timeout: -1s\n", "", file + "1: --timeout -1s: must not be negative"},
	} {
		got := invokeWith(t, withConfig(t, c.config, c.environ), "run", pod, "--root", t.TempDir())
		if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%q %s: %+v", c.config, c.environ, got)
		}
	}
	for _, command := range []string{"run", "plan", "validate"} {
		got := invokeWith(t, withConfig(t, "output: json\ntimeot: 5m\n"), command, pod, "-o", "json")
		if got.code != 2 || !strings.Contains(got.stdout, `"line": 2`) {
			t.Errorf("the document of %s for a mistake: %+v", command, got)
		}
	}
}

// TestConfigUnknownVariable: a variable that sets nothing is a warning, since it may be for
// another program or version; those of completions are not.
func TestConfigUnknownVariable(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	got := invokeWith(t, withConfig(t, "", "RUNONCE_TIMEOT=5m", "RUNONCE_PRUN=true", "RUNONCE_TAIL=3", "RUNONCE_EMPTY=", "OTHER=x"), "validate", pod)
	want := "warning: RUNONCE_PRUN is set in the environment, but there is no such flag\n" +
		"warning: RUNONCE_TIMEOT is set in the environment, but there is no such flag (did you mean RUNONCE_TIMEOUT?)\n"
	if got.code != 0 || got.stderr != want {
		t.Errorf("%+v", got)
	}
}

// TestConfigIsNoRequest: what is not on the command line does not say what this one command is to
// do: plan uses the engine in spite of a capacity in the file, and flags about this machine do not
// matter on a cluster.
func TestConfigIsNoRequest(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	world := withConfig(t, "capacity: cpu=4\nnode: "+mustAbs(t, nodeFile())+"\nroot: /other\ncreate-namespace: true\n")
	opened := false
	world.Open = func(ctx context.Context, o backend.Options) (backend.Engine, error) {
		opened = true
		return m.open(ctx, o)
	}
	pod := manifest(t, "web", "Always", "[sleep]")
	if got := invokeWith(t, world, "plan", pod, "--root", m.root, "--state", filepath.Join(m.root, "state")); got.code != 0 || !opened {
		t.Errorf("opened %v, %+v", opened, got)
	}
	got := invokeWith(t, world, "plan", pod, "--kubeconfig", "/nosuch")
	if strings.Contains(got.stderr, "no meaning on a cluster") || !strings.Contains(got.stderr, "/nosuch") {
		t.Errorf("%+v", got)
	}
	if got := invokeWith(t, world, "plan", pod, "--kubeconfig", "/nosuch", "--root", "/x"); !strings.Contains(got.stderr, "no meaning on a cluster") {
		t.Errorf("%+v", got)
	}
}

// TestConfigPaths: a path is relative to the file that has it.
func TestConfigPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := "run: {junit: sub/report.xml, images-dir: [one, /two], kubeconfig: \"\"}\nversion: {root: data}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invokeWith(t, withConfig(t, ""), "run", "--root", t.TempDir(), "--config", config, manifest(t, "web", "Always", "[sleep]"))
	if got.code != 2 || !strings.Contains(got.stderr, config+":1: --junit: ") || !strings.Contains(got.stderr, filepath.Join(dir, "sub")) {
		t.Errorf("%+v", got)
	}
	for name, text := range map[string]string{
		"config.yaml": "env-file: [one.env, two.env]\n", "one.env": "NAME=Web\n", "two.env": "NAME=web\n",
		"pod.yaml": strings.Replace(read(t, manifest(t, "web", "Always", "[sleep]")), "name: web", `name: "${NAME}"`, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := invokeWith(t, withConfig(t, ""), "validate", "--config", config, filepath.Join(dir, "pod.yaml")); got.code != 0 {
		t.Errorf("%+v", got)
	}
	alone := withConfig(t, "", "RUNONCE_ENV_FILE="+filepath.Join(dir, "one.env"))
	got = invokeWith(t, alone, "validate", "--config", "/dev/null", filepath.Join(dir, "pod.yaml"))
	if got.code != 2 || !strings.Contains(got.stdout, `"Web"`) {
		t.Errorf("the other variable: %+v", got)
	}
}

// TestCompleteWithConfig: completions look where the configuration file says.
func TestCompleteWithConfig(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("log-dir: "+logged(t, "default_web_1/main")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web", "default/web"}, completions(t, "logs", "--config", config, "")); diff != "" {
		t.Error(diff)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// TestConfigKeepsExitCode: where a value is from does not change the exit code of an error about it.
func TestConfigKeepsExitCode(t *testing.T) {
	t.Parallel()
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: \"127.0.0.1:1/none:1\"}]}\n"
	if err := os.WriteFile(pod, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(t.TempDir(), "images.lock")
	bundle := []string{"images", "bundle", "-o", filepath.Join(t.TempDir(), "bundle.tar"), "--max-retries", "0", pod}
	got := invokeWith(t, withConfig(t, "", "RUNONCE_LOCK="+lock), bundle...)
	if got.code != 4 || !strings.HasPrefix(got.stderr, "runonce: RUNONCE_LOCK: --lock: ") {
		t.Errorf("%+v", got)
	}
}
