package cmd_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

const (
	examples  = "../../examples/"
	packaging = "../../packaging/"
	units     = packaging + "systemd/"
	gce       = packaging + "gce/"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExamplePods: the examples are valid, also those that cloud-init writes.
func TestExamplePods(t *testing.T) {
	t.Parallel()
	valid := func(args ...string) {
		if got := invokeWith(t, noEngine(t), append([]string{"validate"}, args...)...); got.code != 0 || got.stderr != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	valid(examples + "pods")
	valid(examples + "database")
	var userData struct {
		Files []struct{ Path, Content string } `json:"write_files"`
		Run   [][]string                       `json:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(read(t, examples+"cloud-init/user-data.yaml")), &userData); err != nil {
		t.Fatal(err)
	}
	for _, f := range userData.Files {
		path := filepath.Join(t.TempDir(), filepath.Base(f.Path))
		if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
			t.Fatal(err)
		}
		valid(path)
	}
	if len(userData.Files) == 0 || len(userData.Run) == 0 {
		t.Errorf("%+v", userData)
	}
}

var (
	unitCommand  = regexp.MustCompile(`(?m)^#? *Exec\w+=/usr/local/bin/runonce (.*)$`)
	shellCommand = regexp.MustCompile(`(?m)^\s*runonce ([^&\n]*)`)
)

// TestExampleCommands: every command of the examples has flags and arguments that exist.
func TestExampleCommands(t *testing.T) {
	t.Parallel()
	pods := filepath.Dir(manifest(t, "web", "Always", "[sleep]"))
	config := filepath.Join(t.TempDir(), "config")
	declaration := filepath.Join(t.TempDir(), manifests.FormatGCE)
	if err := os.WriteFile(declaration, []byte("spec: {containers: [{image: nginx}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const unusable = `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
		users: [{name: c, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: c}}], current-context: c}`
	if err := os.WriteFile(config, []byte(unusable), 0o600); err != nil {
		t.Fatal(err)
	}
	place := strings.NewReplacer(
		`"$config"`, config, `"$1"`, pods, "--exit-code-from tests", "", "--junit report.xml", "",
		"/etc/runonce/pods.d/%i", pods, "/etc/runonce/pods", pods,
		"http://metadata.google.internal/computeMetadata/v1/instance/attributes/gce-container-declaration", declaration,
		"/usr/local/libexec/runonce/gce/providers.yaml", gce+"providers.yaml", "/usr/local/libexec/runonce/gce", gce,
	)
	for file, c := range map[string]struct {
		command *regexp.Regexp
		want    int
	}{
		units + "runonce.service":         {unitCommand, 3},
		units + "runonce@.service":        {unitCommand, 3},
		units + "runonce-watch@.service":  {unitCommand, 1},
		gce + "runonce-gce.service":       {unitCommand, 1},
		examples + "ci/run-on-cluster.sh": {shellCommand, 1},
	} {
		found := c.command.FindAllStringSubmatch(read(t, file), -1)
		if len(found) != c.want {
			t.Errorf("%s: %d commands, want %d", file, len(found), c.want)
		}
		for _, m := range found {
			reached := false
			got := invokeWith(t, cmd.IO{Open: func(context.Context, backend.Options) (backend.Engine, error) {
				reached = true
				return nil, backend.ErrNotRoot
			}}, strings.Fields(place.Replace(m[1])+" "+nodeOfRun(m[1]))...)
			if reached == strings.Contains(m[1], "--kubeconfig") || got.code != 4 {
				t.Errorf("%s: %s: %+v", file, m[1], got)
			}
		}
	}
}

// TestExampleOnCluster: the script has the exit code of the run and leaves no kubeconfig behind, also when there
// is no namespace to delete.
func TestExampleOnCluster(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(examples + "ci/run-on-cluster.sh")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	exectest.Write(t, filepath.Join(bin, "kubectl"), "#!/bin/sh\n[ \"$3\" != delete ]\n")
	exectest.Write(t, filepath.Join(bin, "runonce"), "#!/bin/sh\nexit 3\n")
	c := exec.CommandContext(t.Context(), "sh", script, "pods")
	c.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + dir, "CI_JOB_ID=1", "KUBECONFIG_FILE=/none"}
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 3 {
		t.Errorf("exit code %d, want 3: %s", c.ProcessState.ExitCode(), out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestExampleCIFiles: the job of GitLab has the keys of GitLab's own schema, as its editor and the npm
// package gitlab-ci-local have it. "make lint" checks that of GitHub.
func TestExampleCIFiles(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("testdata/gitlab-ci.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		t.Helper()
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(value)
	}
	text := read(t, examples+"ci/gitlab.yaml")
	if err := check(text); err != nil {
		t.Error(err)
	}
	if check(strings.Replace(text, "after_script:", "after_scripts:", 1)) == nil || check(strings.Replace(text, "when: always", "when: ever", 1)) == nil {
		t.Error("the schema accepts mistakes")
	}
	if err := check(componentText(t, map[string]string{"path": "deploy/test"})); err != nil {
		t.Errorf("the component: %v", err)
	}
	if len(githubJob(t).scripts) != 1 || len(githubJob(t).after) != 1 || len(githubJob(t).variables) != 3 {
		t.Errorf("%+v", githubJob(t))
	}
	got := invokeWith(t, cmd.IO{Open: noEngine(t).Open, Environ: func() []string {
		return []string{"DATABASE_PORT=5432", "SERVICE_PORT=8080", "SERVICE_IMAGE=registry.example/s:1", "TEST_IMAGE=registry.example/t:1"}
	}}, "validate", "--substitute", examples+"ci/pods")
	if got.code != 0 || got.stderr != "" || got.stdout != "3 pods, no error\n" {
		t.Errorf("%+v", got)
	}
}

// nodeOfRun names the node of a run on this machine, since the tests have no machine to detect.
func nodeOfRun(command string) string {
	if (strings.HasPrefix(command, "run ") || strings.HasPrefix(command, "watch ")) && !strings.Contains(command, "--kubeconfig") {
		return "--node " + nodeFile()
	}
	return ""
}
