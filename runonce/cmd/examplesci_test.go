package cmd_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/testing/exectest"
)

// ciJob is the job of a CI example: what its system runs for it.
type ciJob struct {
	variables map[string]string
	scripts   []string // each in a shell of its own
	after     []string // the same, whatever became of those before
}

// step is one of GitHub Actions.
type step struct {
	ID, Name, Run, If, Uses string
	Env, With               map[string]string
}

// jobOf returns the job that has the steps.
func jobOf(variables map[string]string, steps []step) ciJob {
	job := ciJob{variables: variables}
	for _, s := range steps {
		var exports strings.Builder
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			exports.WriteString("export " + name + "='" + s.Env[name] + "'\n")
		}
		switch script := exports.String() + "set -e\n" + s.Run; {
		case s.Run == "":
		case s.If == "always()":
			job.after = append(job.after, script)
		default:
			job.scripts = append(job.scripts, script)
		}
	}
	return job
}

// parse reads YAML.
func parse(t *testing.T, text string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// workflow is one of GitHub Actions.
type workflow struct {
	Jobs map[string]struct {
		Env   map[string]string
		Steps []step
	}
}

// githubJob reads the example of GitHub Actions, whose keys "make lint" checks.
func githubJob(t *testing.T) ciJob {
	t.Helper()
	var w workflow
	parse(t, read(t, examples+"ci/github.yaml"), &w)
	return jobOf(w.Jobs["integration"].Env, w.Jobs["integration"].Steps)
}

// composite is an action of GitHub that is made of steps.
type composite struct {
	Inputs map[string]struct{ Default string }
	Runs   struct{ Steps []step }
}

// readAction reads one of this repository, and returns its directory.
func readAction(t *testing.T, name string) (composite, string) {
	t.Helper()
	var c composite
	parse(t, read(t, packaging+name+"/action.yml"), &c)
	dir, err := filepath.Abs(packaging + name)
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// actionJob reads the example of the action, and the action, of which this program is installed, with these inputs
// instead of those of the example.
func actionJob(t *testing.T, inputs map[string]string) ciJob {
	t.Helper()
	var w workflow
	parse(t, read(t, examples+"ci/github-action.yaml"), &w)
	with := map[string]string{}
	for _, s := range w.Jobs["integration"].Steps {
		if strings.HasSuffix(s.Uses, "/packaging/github@main") {
			maps.Copy(with, s.With)
		}
	}
	if with["path"] == "" {
		t.Fatal("the example does not use the action")
	}
	maps.Copy(with, inputs)
	action, dir := readAction(t, "github")
	for name := range with {
		if _, ok := action.Inputs[name]; !ok {
			t.Errorf("the action has no input %q", name)
		}
	}
	for i := range action.Runs.Steps {
		env := action.Runs.Steps[i].Env
		for name, value := range env {
			for input, d := range action.Inputs {
				given, ok := with[input]
				if !ok {
					given = d.Default
				}
				value = strings.ReplaceAll(value, "${{ inputs."+input+" }}", given)
			}
			env[name] = value
		}
	}
	return jobOf(map[string]string{"GITHUB_ACTION_PATH": dir}, action.Runs.Steps)
}

// downJob reads the action that removes what the other one has kept.
func downJob(t *testing.T) ciJob {
	t.Helper()
	action, dir := readAction(t, "github/down")
	return jobOf(map[string]string{"GITHUB_ACTION_PATH": dir}, action.Runs.Steps)
}

// gitlab is a job of GitLab CI.
type gitlab struct {
	Variables   map[string]string
	Script      []string
	AfterScript []string `json:"after_script"`
}

func (g gitlab) job() ciJob {
	in := func(lines []string) []string { return []string{"set -eo pipefail\n" + strings.Join(lines, "\n")} }
	return ciJob{g.Variables, in(g.Script), in(g.AfterScript)}
}

// gitlabJob reads the example of GitLab CI.
func gitlabJob(t *testing.T) ciJob {
	t.Helper()
	var pipeline struct{ Integration gitlab }
	parse(t, read(t, examples+"ci/gitlab.yaml"), &pipeline)
	return pipeline.Integration.job()
}

// componentText returns the jobs of the component of GitLab CI, with these inputs.
func componentText(t *testing.T, inputs map[string]string) string {
	t.Helper()
	head, jobs, _ := strings.Cut(read(t, packaging+"gitlab/templates/runonce.yml"), "\n---\n")
	var spec struct {
		Spec struct {
			Inputs map[string]struct{ Default any }
		}
	}
	parse(t, head, &spec)
	for name, input := range spec.Spec.Inputs {
		value, ok := inputs[name]
		if !ok {
			text, err := json.Marshal(input.Default)
			if err != nil {
				t.Fatal(err)
			}
			value = strings.Trim(string(text), `"`)
		}
		jobs = strings.ReplaceAll(jobs, "$[[ inputs."+name+" ]]", value)
	}
	return jobs
}

// componentJob reads the component of GitLab CI.
func componentJob(t *testing.T, inputs map[string]string) ciJob {
	t.Helper()
	var pipeline struct{ Runonce gitlab }
	parse(t, componentText(t, inputs), &pipeline)
	return pipeline.Runonce.job()
}

// woodpeckerJob reads the example of Woodpecker CI.
func woodpeckerJob(t *testing.T) ciJob {
	t.Helper()
	var w struct {
		Steps []struct {
			Commands []string
			When     []map[string]any
		}
	}
	parse(t, read(t, examples+"ci/woodpecker.yaml"), &w)
	var job ciJob
	for _, s := range w.Steps {
		script := "set -e\n" + strings.Join(s.Commands, "\n")
		if len(s.When) > 0 {
			job.after = append(job.after, script)
		} else {
			job.scripts = append(job.scripts, script)
		}
	}
	return job
}

var (
	jenkinsVariable = regexp.MustCompile(`(?m)^    (\w+) = "(.*)"$`)
	jenkinsScript   = regexp.MustCompile(`(?s)\bsh (?:'''(.*?)'''|'([^'\n]*)')`)
)

// jenkinsJob reads the example of Jenkins.
func jenkinsJob(t *testing.T) ciJob {
	t.Helper()
	stages, post, _ := strings.Cut(read(t, examples+"ci/Jenkinsfile"), "  post {")
	job := ciJob{variables: map[string]string{}}
	for _, m := range jenkinsVariable.FindAllStringSubmatch(stages, -1) {
		job.variables[m[1]] = m[2]
	}
	for _, m := range jenkinsScript.FindAllStringSubmatch(stages, -1) {
		job.scripts = append(job.scripts, "set -e\n"+m[1]+m[2])
	}
	for _, m := range jenkinsScript.FindAllStringSubmatch(post, -1) {
		job.after = append(job.after, "set -e\n"+m[1]+m[2])
	}
	return job
}

// TestActionInstalls: the action installs a release whose checksums have the digest that is given, and no other.
func TestActionInstalls(t *testing.T) {
	t.Parallel()
	needCurl(t)
	releases, prefix := t.TempDir(), t.TempDir()
	arch := map[string]string{"amd64": "amd64", "arm64": "arm64"}[runtime.GOARCH]
	archive := filepath.Join(releases, "v1", "runonce-v1-linux-"+arch+".tar.gz")
	exectest.Write(t, filepath.Join(releases, "bin", "runonce"), "#!/bin/sh\n")
	shell := func(script string, environ ...string) (string, error) {
		c := exec.CommandContext(t.Context(), "bash", "-c", script)
		c.Dir, c.Env = releases, append(os.Environ(), environ...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	sums, err := shell("mkdir -p v1 tools && tar -czf " + archive + " bin && cd v1 && sha256sum *.tar.gz >SHA256SUMS && sha256sum <SHA256SUMS")
	if err != nil {
		t.Fatal(sums, err)
	}
	exectest.Write(t, filepath.Join(releases, "tools", "sudo"), "#!/bin/sh\nexec \"$@\"\n")
	server := httptest.NewServer(http.FileServer(http.Dir(releases)))
	t.Cleanup(server.Close)
	digest := strings.Fields(sums)[0]
	for _, tc := range []struct {
		name   string
		inputs map[string]string
		change string // of the release
		want   string // in the output; empty if it installs
	}{
		{"no version", map[string]string{"version": ""}, "", `::error title=runonce::runonce is not installed on this runner: give the input "version"`},
		{"no digest", map[string]string{"version": "v1", "sha256": ""}, "", `the input "sha256" is missing`},
		{"no release", map[string]string{"version": "v2", "sha256": digest}, "", "could not download " + server.URL + "/v2/SHA256SUMS"},
		{"another digest", map[string]string{"version": "v1", "sha256": strings.Repeat("0", 64)}, "", "is not the one with the digest 0000"},
		{"installs", map[string]string{"version": "v1", "sha256": digest}, "", ""},
		{"another archive", map[string]string{"version": "v1", "sha256": digest}, "echo >>" + archive, "is not the one in SHA256SUMS"},
	} {
		if _, err := shell(tc.change); err != nil {
			t.Fatal(err)
		}
		tc.inputs["releases"] = server.URL
		job := actionJob(t, tc.inputs)
		out, err := shell(job.scripts[0], "PATH="+filepath.Join(releases, "tools")+":/usr/bin:/bin", "PREFIX="+prefix, "GITHUB_ACTION_PATH="+job.variables["GITHUB_ACTION_PATH"])
		var exit *exec.ExitError
		if tc.want == "" && err != nil || tc.want != "" && (!errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(out, tc.want)) {
			t.Errorf("%s: %v\n%s", tc.name, err, out)
		}
		if _, err := os.Stat(filepath.Join(prefix, "bin", "runonce")); (err == nil) != (tc.want == "") {
			t.Errorf("%s: installed: %v", tc.name, err)
		}
		if err := os.RemoveAll(filepath.Join(prefix, "bin")); err != nil {
			t.Fatal(err)
		}
	}
}
