package cmd_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// TestUsage: one line says what to do.
func TestUsage(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	for _, c := range []struct{ args, want string }{
		{"watch --queue " + pod, "watch: --queue needs pods that end, and watch keeps pods running: use run"},
		{"run --kubeconfig none --queue " + pod, "--queue is about this machine: on a cluster, pods wait for the scheduler, as long as --schedule-timeout says"},
		{"plan --kubeconfig none --queue " + pod, "--queue is about this machine: on a cluster"},
		{"get pods", `unknown command "get": use "runonce ps"`},
		{"get events", `unknown command "get": use "runonce events"`},
		{"describe pod", `describe needs a POD`},
		{"inspect web", `unknown command "inspect": use "runonce describe POD"`},
		{"apply -f x", `unknown command "apply": use "runonce run PATH"`},
		{"create -f x", `unknown command "create": use "runonce run PATH"`},
		{"start web", `unknown command "start": use "runonce run PATH"`},
		{"restart web", `unknown command "restart": use "runonce down POD", and then "runonce run PATH"`},
		{"kube play x", `unknown command "kube": use "runonce run PATH"`},
		{"kube down x", `unknown command "kube": use "runonce down PATH"`},
		{"play kube x", `unknown command "play": use "runonce run PATH"`},
		{"compose up -d", `unknown command "compose": use "runonce run PATH"`},
		{"stats", `unknown command "stats": use "runonce top"`},
		{"status web", `unknown command "status": use "runonce ps"`},
		{"config view", `unknown command "config": use "runonce validate PATH" for manifests`},
		{"delete -f x", `unknown command "delete": use "runonce down PATH" or "runonce down POD", which stop and remove pods`},
		{"rm web", `unknown command "rm": use "runonce down PATH" or "runonce down POD"`},
		{"kill web", `unknown command "kill": use "runonce down PATH" or "runonce down POD"`},
		{"stop web", `unknown command "stop": use "runonce down PATH" or "runonce down POD"`},
		{"Stop web", `unknown command "Stop": use "runonce down PATH" or "runonce down POD"`},
		{"enable web", `unknown command "enable": this is for systemd`},
		{"pull x", `unknown command "pull": use "runonce images pull PATH"`},
		{"rnu x", `unknown command "rnu": did you mean "runonce run"?`},
		{"donw x", `unknown command "donw": did you mean "runonce down"?`},
		{"done x", `"done" is neither a command nor an existing path; see "runonce help"`},
		{"validtae x", `unknown command "validtae": did you mean "runonce validate"?`},
		{"compltion", `unknown command "compltion": did you mean "runonce completion"?`},
		{"help kube play", `unknown command "kube": use "runonce run PATH"`},
		{"help rnu", `unknown command "rnu": did you mean "runonce run"?`},
		{"--rm nosuch", `"nosuch" is neither a command nor an existing path; see "runonce help"`},
		{"./nosuch --node NODE", "./nosuch: does not exist\nrunonce: the input has 1 error: nothing was started"},
		{"images imprt x", `unknown command "images imprt": must be list, pull, import, bundle, rm or prune`},
		{"help images imprt", `unknown command "images imprt"; see "runonce images --help"`},
		{"run -f x", `unknown flag -f: give the path without it, as in "runonce run PATH"; see "runonce run --help"`},
		{"down -f x", `unknown flag -f: give the path without it, as in "runonce down PATH"; see`},
		{"images list -n prod", `unknown flag -n: it is the namespace of pods, which this command does not need (--namespace is that of containerd)`},
		{"ps -A", `unknown flag -A: all namespaces are always included`},
		{"ps -f x", `unknown flag -f; see`},
		{"ps -w", `unknown flag -w: use "watch runonce ps"`},
		{"run -d x", `unknown flag -d: pods keep running when "runonce run" has exited`},
		{"run --dry-run x", `unknown flag --dry-run: use "runonce plan PATH", which changes nothing`},
		{"down --dry-run x", `unknown flag --dry-run: "runonce ps" lists the pods that run`},
		{"run --reruns x", `unknown flag --reruns; see`},
		{"run --skip-invalids x", `unknown flag --skip-invalids; see`},
		{"down --log x", `unknown flag --log; see`},
		{"down --al", `unknown flag --al; see`},
		{"run --timeot 5s x", `unknown flag --timeot (did you mean --timeout?)`},
		{"run --nothing-like-it x", `unknown flag --nothing-like-it; see "runonce run --help"`},
		{"run x --timeout", `--timeout: needs a value`},
		{"run --timeout 5 x", `--timeout "5": a duration needs a unit, for example 5s`},
		{"run --timeout soon x", `--timeout "soon": must be a duration, for example 90s or 5m`},
		{"run --parallel two x", `--parallel "two": must be a whole number`},
		{"run --retry-factor two x", `--retry-factor "two": must be a number`},
		{"run --rm=2 x", `--rm "2": takes no value, or true or false`},
		{"run --until redy x", `--until "redy": must be one of running, ready, completed`},
		{"run --max-restarts -1 x", `--max-restarts -1: must not be negative`},
		{"run --settle -1s x", `--settle -1s: must not be negative`},
		{"logs --since -5m x", `--since -5m0s: must not be negative`},
		{"run --sha256 00 x", `--sha256 "00": must be 64 hex digits`},
		{"run --until ready --until=running x", `--until is given twice but takes one value`},
		{"run -o json x --output yaml", `--output is given twice but takes one value`},
		{"images list --root a,b", `"a,b": must not contain a comma, which separates the options of a mount`},
		{"down --all --state a,b", `"a,b": must not contain a comma`},
		{"ps --log-dir a\xffb", `"a\xffb": must be valid UTF-8`},
		{"ps --root=", `--root "": must be a directory`},
		{"ps --root a --state ./a/", `--root and --state must be different directories`},
		{"run --cni-conf-dir nosuch x", `--cni-conf-dir "nosuch": must be an existing directory`},
		{"images pull --hosts-dir usage_test.go x", `--hosts-dir "usage_test.go": must be an existing directory`},
		{"run --image-verifier-dir nosuch x", `--image-verifier-dir: open nosuch: no such file or directory`},
		{"run --image-verifier-dir EMPTY x", `has no verifier: put a program there`},
		{"images pull --image-verifier-dir ../../docs x", `--image-verifier-dir: everything there must be a program: exec: "../../docs/`},
		{"images list --root a --root b", `--root is given twice but takes one value`},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			got := invokeWith(t, noEngine(t), strings.Fields(strings.NewReplacer("NODE", nodeFile(), "EMPTY", t.TempDir()).Replace(c.args))...)
			if got.code != 2 || (got.stdout != "" && !strings.Contains(c.args, "-o json")) || !strings.Contains("runonce: "+strings.TrimPrefix(got.stderr, "runonce: "), c.want) {
				t.Errorf("%+v", got)
			}
		})
	}
	got := invokeWith(t, noEngine(t), "plan", pod, "--node", nodeFile(), "--node-label", "a=b", "--node-label", "c=d")
	if got.code != 0 {
		t.Errorf("a flag that may be repeated: %+v", got)
	}
}

// TestCommandOrPath: what is meant as a command is not run as a path of that name.
func TestCommandOrPath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"log", "lgos", "kube", "Plan", "plans", "pods", "ops", "batch", "match", "manifests", "web-1"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"log":           `unknown command "log": use "runonce logs POD" (the path of this name is ./log)`,
		"lgos":          `unknown command "lgos": did you mean "runonce logs"? (the path of this name is ./lgos)`,
		"kube play":     `unknown command "kube": use "runonce run PATH" (the path of this name is ./kube)`,
		"plans --rerun": `unknown command "plans": did you mean "runonce plan"? (the path of this name is ./plans)`,
		"Plan":          `unknown command "Plan": did you mean "runonce plan"? (the path of this name is ./Plan)`,
		"pods":          "no pod in pods", "ops": "no pod in ops", "batch": "no pod in batch", "match": "no pod in match",
		"manifests": "no pod in manifests", "web-1": "no pod in web-1",
		"./log": "no pod in ./log", "log/": "no pod in log/", "run log": "no pod in log", "-- log": "no pod in log",
	} {
		got := invokeWith(t, noEngine(t), strings.Fields(args)...)
		if got.code != 2 || got.stderr != "runonce: "+want+"\n" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestNeedsRoot: code 4, and what a user without root can do.
func TestNeedsRoot(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	root := t.TempDir()
	invoke := func(args string) invocation {
		var out, errs bytes.Buffer
		code := cmd.Main(t.Context(), append(strings.Fields("runonce "+args), "--root", root), cmd.IO{
			Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Machine: os.DirFS("/"),
			Open: func(context.Context, backend.Options) (backend.Engine, error) { return nil, backend.ErrNotRoot },
		})
		return invocation{code, out.String(), errs.String()}
	}
	for args, want := range map[string]string{
		"ps": `runonce: "ps" needs root: use sudo`, "run " + pod: `runonce: "run" needs root: use sudo`,
		"down web": `runonce: "down" needs root: use sudo`, "images list": `runonce: "images list" needs root: use sudo`,
		"plan " + pod: `runonce: "plan" needs root to see this machine and its pods: use sudo, or describe a node, as in --capacity cpu=4,memory=8Gi`,
	} {
		if got := invoke(args); got.code != 4 || got.stderr != want+"\n" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := invoke("plan --capacity cpu=4,memory=8Gi " + pod); got.code != 0 {
		t.Errorf("%+v", got)
	}
}
