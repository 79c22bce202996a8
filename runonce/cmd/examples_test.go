package cmd_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

const (
	examples = "../../examples/"
	units    = "../../packaging/systemd/"
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
	const unusable = `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
		users: [{name: c, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: c}}], current-context: c}`
	if err := os.WriteFile(config, []byte(unusable), 0o600); err != nil {
		t.Fatal(err)
	}
	place := strings.NewReplacer(
		`"$config"`, config, `"$1"`, pods, "--exit-code-from tests", "", "--junit report.xml", "",
		"/etc/runonce/pods.d/%i", pods, "/etc/runonce/pods", pods, "deploy/test/", pods, "artifacts/", t.TempDir()+"/",
		`"${own[@]}"`, "--root /a --state /b --log-dir /c",
	)
	for file, c := range map[string]struct {
		command *regexp.Regexp
		want    int
	}{
		units + "runonce.service":         {unitCommand, 3},
		units + "runonce@.service":        {unitCommand, 3},
		units + "runonce-watch@.service":  {unitCommand, 1},
		examples + "ci/run-pods.sh":       {shellCommand, 2},
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

// nodeOfRun names the node of a run on this machine, since the tests have no machine to detect.
func nodeOfRun(command string) string {
	if (strings.HasPrefix(command, "run ") || strings.HasPrefix(command, "watch ")) && !strings.Contains(command, "--kubeconfig") {
		return "--node " + nodeFile()
	}
	return ""
}
