package e2e

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/testing/testimages"
)

// kubectl is a kubectl that works with a server of a box.
type kubectl struct {
	path, config, home string
}

// serve has a command serve the pods of the box until the end of the test, and returns a kubectl for it.
func (b *box) serve(t *testing.T, command string, args ...string) kubectl {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{filepath.Join(root, ".cache", "cluster", "kubectl"), filepath.Join(b.dir, "kubeconfig"), t.TempDir()}
	if os.Getenv("RUNONCE_TEST_CLUSTER") == "" {
		t.Skip("needs what make test-cluster builds")
	}
	server := b.command(t, command, args...)
	errs, err := server.StderrPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := server.Wait(); err != nil && command == "serve" { // the exit code of watch is about its pods
			t.Errorf("%s: %v", command, err)
		}
	})
	lines := bufio.NewReader(errs)
	for line := ""; !strings.HasPrefix(line, "serving on 127.0.0.1:"); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("%s: %q, %v", command, line, err)
		}
	}
	go func() { _, _ = io.Copy(os.Stderr, lines) }()
	config, err := os.ReadFile(filepath.Join(b.dir, "state", "kubeconfig"))
	if err == nil {
		err = os.WriteFile(k.config, config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k kubectl) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, k.path, append([]string{"--kubeconfig", k.config}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.home}
	return cmd
}

// run runs kubectl and returns its exit code, and all that it prints.
func (k kubectl) run(t *testing.T, stdin string, args ...string) (int, string) {
	t.Helper()
	cmd := k.command(t, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

// invocation is one of kubectl, and what becomes of it.
type invocation struct {
	args  string
	stdin string
	code  int
	want  string // a regular expression
}

// check runs kubectl again and again.
func (k kubectl) check(t *testing.T, all []invocation) {
	t.Helper()
	for _, tt := range all {
		code, out := k.run(t, tt.stdin, strings.Fields(tt.args)...)
		if code != tt.code || !regexp.MustCompile(tt.want).MatchString(out) {
			t.Errorf("kubectl %s: exit code %d, want %d and %q:\n%s", tt.args, code, tt.code, tt.want, out)
		}
	}
}

const kubectlPods = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/box:1
    args: [web, -addr, ":8080", -dir, /]
    readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}
  - {name: second, image: localhost/box:1, args: [do, echo beside, trap]}
---
apiVersion: v1
kind: Pod
metadata: {name: job, namespace: batch, labels: {app: job}}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: localhost/box:1, args: [do, "echo done", "exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: reads}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: localhost/box:1, stdin: true, stdinOnce: true, args: [do, listen, "exit 5"]}
---
apiVersion: v1
kind: Pod
metadata: {name: files}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: localhost/tar:1}]
`

// TestKubectl: kubectl works with the pods of a machine as with those of a cluster.
func TestKubectl(t *testing.T) {
	b := newBox(t, "")
	k := b.serve(t, "serve", "--listen", "127.0.0.1:0")
	b.up(t, directory(t, kubectlPods), 1, "--until", "ready")
	k.check(t, []invocation{
		{args: "get pods -A -o wide", want: `(?m)^batch +job +0/1 +Error +0 +\d+s +<none> .*\ndefault +files +1/1 .*\ndefault +reads +1/1 .*\ndefault +web +2/2 +Running +0 +\d+s +[0-9.]+ +\S+ +<none> +<none>$`},
		{args: "get pods", want: `^NAME +READY +STATUS +RESTARTS +AGE\nfiles .*\nreads .*\nweb +2/2 +Running`},
		{args: "get all", want: `pod/web(.*\n)+.*service/web +ClusterIP +[0-9.]+ +<none> +80/TCP`},
		{args: "get nodes -o wide", want: ` Ready +<none> .* v1\.37\.\d+\+runonce-.* containerd://`},
		{args: "get ns -o name", want: `^namespace/batch\nnamespace/default\n$`},
		{args: "get pod web -o yaml", want: `(?m)^  resourceVersion: "\d+"\n(.*\n)+  phase: Running`},
		{args: "get pod web -o jsonpath={.status.containerStatuses[*].ready}", want: `^true true$`},
		{args: "get pods -A -l app=job -o name", want: `^pod/job\n$`},
		{args: "get pods -A --field-selector status.phase=Failed -o name", want: `^pod/job\n$`},
		{args: "get pods -A --chunk-size 1 --sort-by .metadata.name -o name", want: `^pod/files\npod/job\npod/reads\npod/web\n$`},
		{args: "get pod none", code: 1, want: `^Error from server \(NotFound\): pods "none" not found\n$`},
		{args: "get pods --field-selector spec.x=1", code: 1, want: `field label not supported: spec.x`},
		{args: "describe pod web", want: `(?s)Name: +web\n.*Node: +\S+/[0-9.]+\n.*Ready: +True\n.*Events:\n.*Started +.* runonce +.*Started container main`},
		{args: "describe node", want: `(?s)Ready +True .*InternalIP: .*cpu: .*Container Runtime Version: +containerd://.*default +web .*Allocated resources`},
		{args: "describe service web", want: `Selector: +app=web`},
		{args: "logs web --all-containers --prefix", want: `(?m)^\[pod/web/second\] beside$`},
		{args: "logs web -c second --tail 1 --timestamps", want: `^\d{4}-\S+Z ready\n$`},
		{args: "logs -n batch job", want: `^done\n$`},
		{args: "logs web -c none", code: 1, want: `container none is not valid for pod web`},
		{args: "exec web -c second -- box exit 7", code: 7, want: `exit code 7`},
		{args: "exec -i web -c main -- box listen", stdin: "in\n", want: `in\nend\n`},
		{args: "exec web -- box echo $(NO)", want: `\$\(NO\)\n$`},
		{args: "attach -i reads", stdin: "hello\n", want: `hello\nend\n`},
		{args: "wait --for=condition=Ready pod/web --timeout 60s", want: `^pod/web condition met\n$`},
		{args: "wait --for=jsonpath={.status.phase}=Failed pod/reads --timeout 60s", want: `condition met`},
		{args: "debug web --image localhost/box:1 --container dbg --target main --profile general -- box do processes", want: ``},
		{args: "events --for pod/web", want: `Normal +Started +Pod/web +Started container main`},
		{args: "get events --field-selector involvedObject.name=web,reason=Started", want: `pod/web +Started container second`},
		{args: "top pods --containers", want: `(?m)^web +main +\d+m +\d+Mi`},
		{args: "top nodes", want: `\d+m +\d+% +\d+Mi`},
		{args: "explain pod.spec.containers.livenessProbe", want: `(?s)FIELD: livenessProbe <Probe>.*failureThreshold`},
		{args: "api-resources", want: `(?m)^pods +po +v1 +true +Pod$`},
		{args: "api-versions", want: `(?m)^metrics.k8s.io/v1beta1$`},
		{args: "auth whoami", want: `Username +system:admin`},
		{args: "auth can-i delete pods", want: `^yes\n$`},
		{args: "auth can-i create pods", code: 1, want: `^no`},
		{args: "version", want: `Server Version: v1\.37\.\d+\+runonce`},
		{args: "get --raw /api/v1/nodes/" + b.nodeName(t) + "/proxy/healthz", want: `^ok$`},
		{args: "create -f " + filepath.Join(directory(t, pod("new", "Never", "exit", "0")), "000.yaml"), code: 1, want: `MethodNotAllowed.*this server does not create pods: .* "runonce run"`},
		{args: "annotate pod web a=b", code: 1, want: `this server does not patch pods`},
		{args: "delete -n batch pod job", want: `^pod "job" deleted from batch namespace\n$`},
		{args: "get pods -n batch", want: `^No resources found in batch namespace\.\n$`},
	})
	k.copies(t)
	k.forwards(t)
	out, code := inTerminal(t, k.command(t, "exec", "-it", "web", "-c", "main", "--", "box", "do", "facts", "listen"), "ttySize",
		func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("typed\r\x04") })
	if code != 0 || !strings.Contains(out, "typed") {
		t.Errorf("exec -it: exit code %d, %q", code, out)
	}
	k.watches(t)
}

const kubectlObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: hunter2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: localhost/box:1, args: [do, echo serves, trap], envFrom: [{configMapRef: {name: settings}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: localhost/box:1, args: [echo, worked], envFrom: [{secretRef: {name: login}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  terminationGracePeriodSeconds: 3600
  containers: [{name: main, image: localhost/box:1, args: [stay]}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers:
          - {name: main, image: localhost/box:1, args: [exit, "3"]}
`

// TestKubectlObjects: kubectl finds what the pods were made from, and refer to.
func TestKubectlObjects(t *testing.T) {
	b := newBox(t, "")
	k := b.serve(t, "serve", "--listen", "127.0.0.1:0")
	b.up(t, directory(t, kubectlObjects), 1, "--until", "completed", "--run-cronjobs")
	k.check(t, []invocation{
		{args: "get all", want: `(?s)pod/nightly-0 .*pod/web-1 .*deployment.apps/web +2/2 +2 +2 .*job.batch/nightly +Failed +0/1 .*job.batch/work +Complete +1/1 .*cronjob.batch/nightly +0 3 `},
		{args: "get deployments -o wide", want: `web +2/2 +2 +2 +\d+s +main +localhost/box:1 +app=web`},
		{args: "get cm settings -o jsonpath={.data}", want: `^\{"color":"blue"\}$`},
		{args: "get secrets", want: `login +Opaque +1 `},
		{args: "describe secret login", want: `password: +0 bytes`},
		{args: "describe deployment web", want: `(?s)2 desired \| 2 updated \| 2 total \| 2 available \| 0 unavailable.*Available +True +MinimumReplicasAvailable`},
		{args: "describe pod web-0", want: `Controlled By: +Deployment/web`},
		{args: "describe job work", want: `(?s)Pods Statuses: +0 Active \(0 Ready\) / 1 Succeeded / 0 Failed`},
		{args: "wait --for=condition=complete job/work --timeout 10s", want: `^job.batch/work condition met\n$`},
		{args: "wait --for=condition=failed job/nightly --timeout 10s", want: `condition met`},
		{args: "wait --for=condition=available deployment/web --timeout 10s", want: `condition met`},
		{args: "rollout status deployment/web --timeout 10s", want: `deployment "web" successfully rolled out`},
		{args: "logs job/work", want: `^worked\n$`},
		{args: "logs deployment/web --all-pods --prefix", want: `(?m)^\[pod/web-1/main\] serves$`},
		{args: "exec deployment/web -- box exit 7", code: 7, want: `exit code 7`},
		{args: "get pods -l job-name=work -o name", want: `^pod/work-0\n$`},
		{args: "explain deployment.spec.strategy", want: `FIELD: strategy <DeploymentStrategy>`},
		{args: "scale deployment web --replicas 3", code: 1, want: `could not find the requested resource`},
		{args: "delete pod stays --wait=false", want: `deleted`},
		{args: "get pod stays", want: `Terminating`},
		{args: "delete pod stays --grace-period 1 --timeout 60s", want: `deleted`},
		{args: "get pod stays", code: 1, want: `NotFound`},
		{args: "delete job work", code: 1, want: `this server does not delete jobs`},
		{args: "create configmap more", code: 1, want: `this server does not create configmaps`},
	})
	if r := b.run(t, "down", "--all"); r.code != 0 {
		t.Errorf("down: exit code %d: %s", r.code, r.stderr)
	}
	k.check(t, []invocation{{args: "get all,cm,secrets", want: `^No resources found`}})
}

// TestKubectlCreates: "kubectl run" and "kubectl apply" have a machine run pods.
func TestKubectlCreates(t *testing.T) {
	b := newBox(t, "")
	archives, err := images()
	if err != nil {
		t.Fatal(err)
	}
	k := b.serve(t, "watch", "--serve", "127.0.0.1:0", "--accept", "--images-dir", archives, "--settle", "0", "--capacity", "cpu=8,memory=16Gi,pods=200")
	file := filepath.Join(directory(t, kubectlPods), "000.yaml")
	k.check(t, []invocation{
		{args: "run one --image localhost/box:1 --restart Never -- exit 4", want: `^pod/one created\n$`},
		{args: "wait --for=jsonpath={.status.phase}=Failed pod/one --timeout 60s", want: `condition met`},
		{args: "run -i --rm three --quiet --image localhost/box:1 --restart Never -- do listen", stdin: "in\n", want: `in\nend\n`},
		{args: "run one --image localhost/box:1", code: 1, want: `AlreadyExists`},
		{args: "run two --image localhost/box:1 --dry-run=server", want: `^pod/two created \(server dry run\)\n$`},
		{args: "run Two --image localhost/box:1", code: 1, want: `^The Pod "Two" is invalid: \n?.*metadata.name: Invalid value`},
		{args: "apply -f " + file, code: 1, want: `(?s)pod/web created.*pod/job created.*this server does not create services`},
		{args: "wait --for=condition=Ready pod/web --timeout 60s", want: `condition met`},
		{args: "get pod one -o jsonpath={.status.containerStatuses[0].restartCount}{.status.containerStatuses[0].state.terminated.exitCode}", want: `^04$`},
		{args: "delete pod one web reads files --now", want: `pod "web" deleted`},
		{args: "get pods", want: `^No resources found`},
	})
}

// nodeName is the name that the machine has as a node.
func (b *box) nodeName(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(name)
}

// copies has kubectl copy a directory to a container, and back.
func (k kubectl) copies(t *testing.T) {
	t.Helper()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "back")
	if err := os.WriteFile(filepath.Join(from, "file"), bytes.Repeat([]byte("content\n"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cp", from, "files:/copied"}, {"cp", "files:/copied", to}} {
		if code, out := k.run(t, "", args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
	if data, err := os.ReadFile(filepath.Join(to, "file")); err != nil || len(data) != 800_000 {
		t.Errorf("copied back: %d bytes, %v", len(data), err)
	}
}

// forwards has kubectl connect to a port of a pod.
func (k kubectl) forwards(t *testing.T) {
	t.Helper()
	cmd := k.command(t, "port-forward", "pod/web", ":8080")
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	port, _, found := strings.Cut(strings.TrimPrefix(line, "Forwarding from 127.0.0.1:"), " ")
	if err != nil || !found {
		t.Fatalf("port-forward: %q, %v", line, err)
	}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("port-forward: %s, %v", resp.Status, err)
		}
	}
}

// watches has kubectl see how a pod is deleted, by another kubectl.
func (k kubectl) watches(t *testing.T) {
	t.Helper()
	cmd := k.command(t, "get", "pods", "-w", "--output-watch-events", "--field-selector", "metadata.name=web")
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	lines := bufio.NewScanner(stdout)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if len(seen) == 2 { // the columns, and the pod
			if code, out := k.run(t, "", "delete", "pod", "web", "--now"); code != 0 || !strings.Contains(out, `pod "web" deleted`) {
				t.Errorf("delete: exit code %d: %s", code, out)
			}
			break
		}
	}
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if strings.HasPrefix(lines.Text(), "DELETED") {
			break
		}
	}
	_ = cmd.Process.Kill()
	if all := strings.Join(seen, "\n"); !regexp.MustCompile(`(?s)EVENT +NAME .*ADDED +web +2/2 +Running .*MODIFIED +web +./2 +Terminating .*DELETED +web `).MatchString(all) {
		t.Errorf("get -w:\n%s", all)
	}
}
