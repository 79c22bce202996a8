package cmd_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runonce/cmd"
)

// completions returns what the program prints for the words, the last of which may be empty,
// without descriptions.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	words = append(append([]string{"runonce"}, words...), "--generate-bash-completion")
	code := cmd.Main(context.Background(), words, cmd.IO{Stdout: &out, Stderr: &errs})
	if code != 0 || errs.Len() > 0 {
		t.Errorf("%q: exit code %d: %s", words, code, &errs)
	}
	var all []string
	for line := range strings.Lines(out.String()) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all = append(all, word)
	}
	return all
}

// logged writes logs of pods and returns the directory.
func logged(t *testing.T, containers ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, c := range containers {
		if err := os.MkdirAll(filepath.Join(dir, c), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestComplete(t *testing.T) {
	t.Parallel()
	logs := logged(t, "default_web_1/main", "default_web_1/side", "default_web_1/.lock", "default_db_2/pg", "prod_db_3/pg", "junk")
	empty, unreadable := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(unreadable, "pods"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string // a space before the end: an empty word
		want string
	}{
		{"p", "plan ps port-forward :files"},
		{"do", "down doctor :files"},
		{"run ", ":files"},
		{"run --unt", "--until"},
		{"--unt", "--until"},
		{"run --until ", "running ready completed"},
		{"watch --stop", "--stop-pods"},
		{"watch --pru", ""}, // hidden
		{"run --until re", "ready"},
		{"run --until=re", "--until=ready"},
		{"run --until = re", "ready"},
		{"run --until = ", "running ready completed"},
		{"run --until =", "running ready completed"},
		{"pods --until re", "ready"},
		{"run -o ", "table wide json yaml github"},
		{"validate -o ", "table json yaml"},
		{"images list --output j", "json"},
		{"ps --log-level w", "warn"},
		{"ps --log-format ", "text json journal"},
		{"run --container-logs j", "journal"},
		{"run --container-logs ", "files journal"},
		{"run --oci-runtime ", "runc crun :files"},
		{"run --pod-security b", "baseline"},
		{"run --cgroup-driver s", "systemd"},
		{"plan --admission-order m", "manifest"},
		{"run --junit ", ":files"},
		{"run --images-dir=", ":files"},
		{"run --timeout ", ""},
		{"run -- --unt", ":files"},
		{"down --recu", ""}, // hidden
		{"images ", "list pull import bundle rm prune"},
		{"images import ", ":files"},
		{"images rm ", ""},
		{"images prune ", ""},
		{"ps --root EMPTY --log-dir LOGS w", ""},
		{"top --sort-by ", "cpu memory"},
		{"describe --root EMPTY --log-dir LOGS w", "web"},
		{"completion ", "bash zsh fish"},
		{"help v", "validate version"},
		{"logs --log-dir LOGS ", "web default/db default/web prod/db"},
		{"logs --log-dir=LOGS pr", "prod/db"},
		{"events --root EMPTY --log-dir LOGS pr", "prod/db"},
		{"logs --log-dir LOGS -c ", "main pg side"},
		{"logs --log-dir LOGS web -c ", "main side"},
		{"logs --log-dir LOGS prod/db --container p", "pg"},
		{"logs --log-dir /none ", ""},
		{"exec --log-dir LOGS web -c ", "main side"},
		{"debug --log-dir LOGS web --target ", "main side"},
		{"debug --log-dir LOGS web -c ", ""},
		{"debug web --profile s", "sysadmin"},
		{"wait web --for ", "running ready completed deleted"},
		{"port-forward --root EMPTY --log-dir LOGS pr", ""},
		{"cp --log-dir LOGS prod/db:/x . -c p", "pg"},
		{"cp --log-dir LOGS . prod/db : /x -c p", "pg"},
		{"cp --root UNREADABLE --log-dir LOGS we", "web: :files"}, // without the right to read the records
		{"down --root EMPTY --log-dir LOGS w", ":files"},
		{"nonsense --no-such ", ":files"},
		{"", "run watch plan validate ps logs events describe top exec attach debug cp port-forward wait report serve kubeconfig down images doctor convert version completion help :files"},
	} {
		line := strings.NewReplacer("LOGS", logs, "EMPTY", empty, "UNREADABLE", unreadable).Replace(c.line)
		want := strings.Fields(c.want)
		if diff := cmp.Diff(want, completions(t, strings.Split(line, " ")...), cmpEmpty); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.line, diff)
		}
	}
}

var cmpEmpty = cmp.Transformer("NilIsEmpty", func(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
})

// TestCompletePods: down, ps and wait complete the pods of earlier runs.
func TestCompletePods(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	if got := invoke(t, m, "run", manifest(t, "web", "Always", "[sleep]"), "--node", nodeFile(), "--settle", "0"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for command, want := range map[string][]string{"down": {"web", "default/web", ":files"}, "ps": {"web", "default/web"}, "wait": {"web", "default/web"}, "logs --only": nil, "ps --only": {"web", "default/web"}} {
		command, flag, _ := strings.Cut(command, " ")
		words := []string{command, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", m.root}
		if flag != "" {
			words = append(words, flag)
		}
		got := completions(t, append(words, "")...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
	}
}

// TestCompletionInShells: the shells show what the program prints. It does not run in parallel:
// until a forked process executes its program, it holds the locks of tests whose time is fake.
func TestCompletionInShells(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, work := t.TempDir(), t.TempDir()
	wrapper := "#!/bin/sh\n" + asProgram + "=1 exec " + self + ` "$@"` + "\n"
	exectest.Write(t, filepath.Join(bin, "runonce"), wrapper)
	for _, name := range []string{"pods/web.yaml", "ps.yaml", "default_web_1/main/0.log"} {
		if err := os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(shell, script string, args ...string) string {
		p := exec.CommandContext(t.Context(), shell, append([]string{"-c", script, shell}, args...)...)
		p.Dir, p.Env = work, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := p.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	bash := `source <(runonce completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _runonce
		printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd ' '`
	for _, c := range []struct{ line, want string }{
		{"runonce p", "plan pods port-forward ps ps.yaml"},
		{"runonce run --until = re", "ready"},
		{"runonce run --until =", "completed ready running"},
		{"runonce run --unt", "--until"},
		{"runonce run p", "pods ps.yaml"},
		{"runonce logs --log-dir . w", "web"},
		{"runonce ps ", ""},
	} {
		if got := in("bash", bash, strings.Split(c.line, " ")...); got != c.want {
			t.Errorf("bash: %q: %q, want %q", c.line, got, c.want)
		}
	}
	if _, err := exec.LookPath("zsh"); err == nil {
		zsh := `compdef() {}; compset() { echo compset "$@" }; _files() { echo FILES }; _describe() { print -rl -- "${(@P)2}" }
			source <(runonce completion zsh); words=("$@"); CURRENT=$#; PREFIX=$words[-1]; _runonce`
		if got, want := in("zsh", zsh, "runonce", "run", "--until", "re"), "ready"; got != want {
			t.Errorf("zsh: %q, want %q", got, want)
		}
		if got, want := in("zsh", zsh, "runonce", "run", "--junit=x"), "compset -P *=\nFILES"; got != want {
			t.Errorf("zsh: %q, want %q", got, want)
		}
		if got, want := in("zsh", zsh, "runonce", "ps"), "ps:list the pods of earlier runs and their current state\nFILES"; got != want {
			t.Errorf("zsh: %q, want %q", got, want)
		}
	}
	if _, err := exec.LookPath("fish"); err == nil {
		fish := `runonce completion fish | source; complete -C 'runonce run --until re'`
		if got := in("fish", fish); got != "ready" {
			t.Errorf("fish: %q", got)
		}
	}
}
