package cmd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// TestDownByFaultyManifest: an error in its file does not make a pod impossible to stop.
func TestDownByFaultyManifest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[sleep]")
		invoke(t, m, "run", pod, "--node", nodeFile())
		text, err := os.ReadFile(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pod, []byte(strings.Replace(string(text), "args:", "argz:", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "default/web removed\n" {
			t.Errorf("%+v", got)
		}
		got := invoke(t, m, "down", pod)
		if got.code != 2 || got.stdout != "" || !strings.HasSuffix(got.stderr, "the input has 1 error: no pod was started from "+pod+"\n") {
			t.Errorf("once more: %+v", got)
		}
		if got := invoke(t, m, "down", "--all"); got.code != 0 || got.stderr != "runonce: there are no pods of earlier runs\n" {
			t.Errorf("%+v", got)
		}
		if got := invoke(t, m, "down", "--all", "--quiet"); got.code != 0 || got.stderr != "" {
			t.Errorf("quietly: %+v", got)
		}
	})
}

// TestDownByKind: a name may have its kind before it, as for kubectl.
func TestDownByKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[sleep]")
		for _, arg := range []string{"pod/web", "pods/web", "po/default/web", "default/web"} {
			invoke(t, m, "run", pod, "--node", nodeFile())
			if got := invoke(t, m, "down", arg); got.code != 0 || got.stdout != "default/web removed\n" {
				t.Errorf("%s: %+v", arg, got)
			}
		}
		invoke(t, m, "run", pod, "--node", nodeFile())
		for _, arg := range []string{"pod/db", "deployment/web", "pod/other/web"} {
			if got := invoke(t, m, "down", arg); got.code != 2 || got.stdout != "" {
				t.Errorf("%s: %+v", arg, got)
			}
		}
	})
}

// TestDownSaysAll: of several errors each is printed.
func TestDownSaysAll(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	dir := t.TempDir()
	args := []string{"down"}
	for _, name := range []string{"one.yaml", "two.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("kind: Pod\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Join(dir, name))
	}
	got := invoke(t, m, args...)
	for _, want := range []string{"one.yaml:1: ", "two.yaml:1: ", "no pod was started from " + args[1], "no pod was started from " + args[2]} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("not %q: %+v", want, got)
		}
	}
	if got.code != 2 {
		t.Errorf("exit code %d", got.code)
	}
}

// TestDownByStandardInput: what came from standard input is found by the names on it.
func TestDownByStandardInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		web, err := os.ReadFile(manifest(t, "web", "Always", "[sleep]"))
		if err != nil {
			t.Fatal(err)
		}
		db := manifest(t, "db", "Always", "[sleep]")
		pipe := func(text string, args ...string) invocation {
			args = append(args, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"))
			return invokeWith(t, cmd.IO{Open: m.open, Stdin: strings.NewReader(text)}, args...)
		}
		other := strings.Replace(string(web), "name: web", "name: other", 1)
		both := string(web) + "---\n" + other
		if got := pipe(both, "run", "-", db, "--node", nodeFile()); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		for _, step := range []struct {
			in   string
			want invocation
		}{
			{string(web), invocation{0, "default/web removed\n", ""}},
			{string(web), invocation{0, "", "runonce: no pod of these manifests was started from standard input\n"}},
			{"", invocation{0, "", "runonce: no pod of these manifests was started from standard input\n"}},
			{other, invocation{0, "default/other removed\n", ""}},
		} {
			if got := pipe(step.in, "down", "-q", "-"); got != step.want {
				t.Errorf("down - of %q: %+v", step.in, got)
			}
		}
		text, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		want := `runonce: no pod of these manifests was started from standard input (pod "db" was started from ` + db + ": runonce down default/db)\n"
		if got := pipe(string(text), "down", "-"); got.code != 0 || got.stdout != "" || got.stderr != want {
			t.Errorf("%+v", got)
		}
	})
}

// TestStartsNothing: only commands that start pods need an OCI runtime.
func TestStartsNothing(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	for _, tc := range []struct {
		args []string
		want bool
	}{
		{[]string{"run", pod, "--node", nodeFile()}, false},
		{[]string{"ps"}, true},
		{[]string{"down", "--all"}, true},
	} {
		root := t.TempDir()
		opened := false
		open := func(_ context.Context, o backend.Options) (backend.Engine, error) {
			if opened = true; o.StartsNothing != tc.want {
				t.Errorf("%s: StartsNothing is %v", tc.args, o.StartsNothing)
			}
			return nil, errors.New("no engine")
		}
		invokeWith(t, cmd.IO{Open: open}, append(tc.args, "--root", filepath.Join(root, "root"), "--state", root)...)
		if !opened {
			t.Errorf("%s opens no engine", tc.args)
		}
	}
}

// TestInterruptedDown: it says what it leaves, and the next one removes that.
func TestInterruptedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[stay]")
		invoke(t, m, "run", pod, "--node", nodeFile())
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cmd.Interrupt{Signal: syscall.SIGTERM}) })
		var errs bytes.Buffer
		world := cmd.IO{Stdout: io.Discard, Stderr: &errs, Stdin: strings.NewReader(""), Getenv: func(string) string { return "" }, Machine: bareMachine(), Open: m.open}
		code := cmd.Main(ctx, []string{"runonce", "down", pod, "--root", m.root, "--state", filepath.Join(m.root, "state")}, world)
		want := `default/web: StopFailed: interrupted: terminated; its network, volumes and files were not removed because these containers still run: "main"`
		if code != 143 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, %s\nwant 143 and %s", code, &errs, want)
		}
		if got := invoke(t, m, "ps"); !strings.Contains(got.stdout, "192.0.2.2") {
			t.Errorf("%+v", got)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "default/web removed\n" {
			t.Errorf("%+v", got)
		}
	})
}
