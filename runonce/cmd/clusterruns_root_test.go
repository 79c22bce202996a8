package cmd_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/testcluster"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/report"
)

// clusterTests are the tests of TestCluster that are no stories, in their order.
func clusterTests() []struct {
	name string
	run  func(t *testing.T, c onCluster)
} {
	return []struct {
		name string
		run  func(t *testing.T, c onCluster)
	}{
		{"Unusable", clusterUnusable},
		{"Limited", clusterLimited},
		{"Webhook", clusterWebhook},
		{"Preempted", clusterPreempted},
		{"TwoRuns", clusterTwoRuns},
		{"Overtaken", clusterOvertaken},
		{"Copies", clusterCopies},
		{"ExpiringToken", clusterExpiringToken},
		{"InCluster", clusterInCluster},
		{"Images", clusterImages},
		{"SlowPull", clusterSlowPull},
		{"Throttled", clusterThrottled},
		{"Unprepared", clusterUnprepared},
		{"Database", clusterDatabase},
		{"Many", clusterMany},
		{"Restart", clusterRestart},
		{"RestartWhileCreating", clusterRestartWhileCreating},
		{"ExpiredWatch", clusterExpiredWatch},
		{"RevokedToken", clusterRevokedToken},
	}
}

// sleeper is a pod whose container ends by itself after a while.
const sleeper = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/box:1", args: [do, %q, exit 0]%s}]
`

// clusterRun is a command that runs in the background.
type clusterRun struct {
	done           chan struct{}
	code           int
	stdout, stderr lockedBuffer
}

// begin starts a command.
func (m machine) begin(args ...string) *clusterRun {
	r := &clusterRun{done: make(chan struct{})}
	world := m.world
	world.Stdout, world.Stderr, world.Stdin = &r.stdout, &r.stderr, strings.NewReader("")
	go func() {
		defer close(r.done)
		r.code = cmd.Main(testContext(), slices.Concat([]string{"runonce"}, args, m.flags), world)
	}()
	return r
}

// says waits until the command has written a text to standard error.
func (r *clusterRun) says(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(r.stderr.String(), text); time.Sleep(20 * time.Millisecond) {
		select {
		case <-r.done:
			t.Fatalf("ended with exit code %d before it said %q:\n%s%s", r.code, text, r.stdout.String(), r.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("did not say %q:\n%s", text, r.stderr.String())
		}
	}
}

// end waits for the end, and returns the report of a run with -o json.
func (r *clusterRun) end(t *testing.T, code int) report.Report {
	t.Helper()
	<-r.done
	checkDocument(t, nil, r.stdout.String())
	var out report.Report
	if err := json.Unmarshal([]byte(r.stdout.String()), &out); err != nil {
		t.Fatalf("exit code %d: %v\n%s%s", r.code, err, r.stdout.String(), r.stderr.String())
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d:\n%s%s", r.code, code, r.stdout.String(), r.stderr.String())
	}
	return out
}

// awaitRunning waits until a pod in the default namespace runs.
func (c onCluster) awaitRunning(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if text, err := c.Get(t.Context(), "/api/v1/namespaces/default/pods/"+name); err == nil && strings.Contains(text, `"phase":"Running"`) {
			return
		}
	}
	t.Fatalf("pod %s does not run", name)
}

// apply applies an object.
func (c onCluster) apply(t *testing.T, path, object string) {
	t.Helper()
	if err := c.Apply(t.Context(), path, object); err != nil {
		t.Fatal(err)
	}
}

// clusterUnusable: exit code 4 with address and cause, 2 for a kubeconfig that is wrong.
func clusterUnusable(t *testing.T, c onCluster) {
	dir := podDir(t, fmt.Sprintf(sleeper, "never", "sleep 1s", ""))
	refused, unknown := c.with(t, c.Server, "https://127.0.0.1:1"), c.with(t, "token-admin", "secret-token")
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"refused":       {refused.flags, 4, "runonce: cluster: API server https://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"},
		"unauthorized":  {unknown.flags, 4, "runonce: cluster: API server " + c.Server + ": "},
		"no file":       {[]string{"--kubeconfig", "/none"}, 2, "runonce: reading the kubeconfig: "},
		"no context":    {append(slices.Clone(c.flags), "--context", "none"), 2, "runonce: reading the kubeconfig: invalid configuration: context was not found for specified context: none"},
		"no cluster":    {[]string{"--kubeconfig", "in-cluster"}, 2, "runonce: looking for the cluster of this pod: "},
		"machine flags": {append(slices.Clone(c.flags), "--cni-bin-dir", "/opt"), 2, "runonce: --cni-bin-dir is about this machine and has no meaning on a cluster"},
	} {
		for _, command := range []string{"run", "plan"} {
			m := machine{world: c.world, flags: tt.args}
			r := m.begin(command, dir)
			<-r.done
			got := r.stderr.String()
			if r.code != tt.code || !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 1 || strings.Contains(got, "secret") {
				t.Errorf("%s: %s: exit code %d, want %d; %s", name, command, r.code, tt.code, got)
			}
		}
	}
}

// clusterWebhook: what a webhook of the cluster refuses is rejected in its words.
func clusterWebhook(t *testing.T, c onCluster) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response":
			{"uid": %q, "allowed": false, "status": {"message": "not on a Sunday", "code": 403}}}`, review.Request.UID)
	}))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/sundays"
	c.apply(t, path, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: sundays}
webhooks:
- name: sundays.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, s.URL+"/", base64.StdEncoding.EncodeToString(ca)))
	defer func() {
		if err := c.Delete(testContext(), path); err != nil {
			t.Error(err)
		}
	}()
	dir := podDir(t, fmt.Sprintf(sleeper, "sunday", "sleep 1s", ""))
	// The server takes a moment to know the webhook.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		r := c.begin("plan", dir)
		if <-r.done; r.code == 3 {
			break
		}
	}
	out := c.begin("run", "-o", "json", dir).end(t, 3)
	if r := out.Results[0]; r.Outcome != "Rejected" || !strings.Contains(r.Message, `"sundays.example.com" denied the request: not on a Sunday`) || r.Attempts != 0 {
		t.Errorf("%+v", r)
	}
}

// bed is a resource of a container, of which withBed gives the node one.
const bed = ", resources: {limits: {example.com/bed: 1}}"

func (c onCluster) withBed(t *testing.T) {
	t.Helper()
	c.apply(t, "/api/v1/nodes/"+testcluster.NodeName+"/status", `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {capacity: {example.com/bed: 1}, allocatable: {example.com/bed: 1}}
`)
}

// clusterPreempted: a pod that the scheduler evicts for one of a higher priority is Preempted.
func clusterPreempted(t *testing.T, c onCluster) {
	c.withBed(t)
	c.apply(t, "/apis/scheduling.k8s.io/v1/priorityclasses/urgent", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}")
	low := c.begin("run", "-o", "json", "--until", "completed", podDir(t, fmt.Sprintf(sleeper, "low", "sleep 5m", bed)))
	c.awaitRunning(t, "low")
	urgent := strings.Replace(fmt.Sprintf(sleeper, "high", "sleep 5m", bed), "spec:", "spec:\n  priorityClassName: urgent", 1)
	high := c.begin("run", "-o", "json", podDir(t, urgent)).end(t, 0)
	if r := high.Results[0]; r.Outcome != "Running" {
		t.Errorf("%+v", r)
	}
	if r := low.end(t, 3).Results[0]; r.Outcome != "Preempted" || r.Reason != "PreemptionByScheduler" {
		t.Errorf("%+v", r)
	}
}

// clusterTwoRuns: two runs of the same manifests at the same time make one pod.
func clusterTwoRuns(t *testing.T, c onCluster) {
	dir := podDir(t, fmt.Sprintf(sleeper, "shared", "sleep 3s", ""))
	one, other := c.begin("run", "-o", "json", "--until", "completed", dir), c.begin("run", "-o", "json", "--until", "completed", dir)
	for _, run := range []*clusterRun{one, other} {
		if r := run.end(t, 0).Results[0]; r.Outcome != "Succeeded" || r.Restarts != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// clusterOvertaken: a pod that another run creates after this one has listed the pods is taken as it is.
func clusterOvertaken(t *testing.T, c onCluster) {
	dir := podDir(t, fmt.Sprintf(sleeper, "overtaken", "sleep 1s", ""))
	var other sync.Once
	m := c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.Method == http.MethodPost {
			other.Do(func() { c.once(t, "run", "--settle", "0", dir) })
		}
		forward.ServeHTTP(w, r)
	})
	if r := m.begin("run", "-o", "json", "--until", "completed", dir).end(t, 0).Results[0]; r.Outcome != "Succeeded" || r.Restarts != 0 {
		t.Errorf("%+v", r)
	}
}

// clusterExpiringToken: the credentials of a plugin are renewed when they expire.
func clusterExpiringToken(t *testing.T, c onCluster) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	plugin := filepath.Join(dir, "plugin")
	script := fmt.Sprintf(`#!/bin/sh
echo >> %s
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {"token": "token-admin", "expirationTimestamp": "%%s"}}' "$(date -u -d '+2 seconds' +%%Y-%%m-%%dT%%H:%%M:%%SZ)"
`, calls)
	exectest.Write(t, plugin, script)
	user := fmt.Sprintf(`{exec: {apiVersion: client.authentication.k8s.io/v1, command: %s, interactiveMode: Never}}`, plugin)
	m := c.with(t, `{token: "token-admin"}`, user)
	m.begin("run", "-o", "json", "--until", "completed", "--rm", podDir(t, fmt.Sprintf(sleeper, "patient", "sleep 4s", ""))).end(t, 0)
	if n, err := os.ReadFile(calls); err != nil || len(n) < 2 {
		t.Errorf("the plugin was called %d times: %v", len(n), err)
	}
}

// clusterRestart: a run goes on when the API server is killed and started again.
func clusterRestart(t *testing.T, c onCluster) {
	run := c.begin("run", "-o", "json", "--until", "completed", podDir(t, fmt.Sprintf(sleeper, "survivor", "sleep 8s", "")))
	c.awaitRunning(t, "survivor")
	c.restart(t, func() {})
	out := run.end(t, 0)
	r := out.Results[0]
	if r.Outcome != "Succeeded" || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
	var phases []string
	for _, p := range r.Phases {
		phases = append(phases, p.Name)
	}
	if !slices.Equal(phases, []string{"create", "schedule", "start"}) {
		t.Errorf("phases %v", phases)
	}
}

// restart kills the API server and starts it again after a call.
func (c onCluster) restart(t *testing.T, meanwhile func()) {
	t.Helper()
	if err := c.KillServer(); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := c.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// clusterRestartWhileCreating: no pod is lost or run twice when the API server is killed while pods are
// created.
func clusterRestartWhileCreating(t *testing.T, c onCluster) {
	var pods []string
	const n = 20
	for i := range n {
		pods = append(pods, fmt.Sprintf(sleeper, fmt.Sprintf("many-%d", i), "sleep 100ms", ""))
	}
	run := c.begin("run", "-o", "json", "--until", "completed", "--parallel", "2", podDir(t, strings.Join(pods, "---\n")))
	run.says(t, "many-3: Starting")
	c.restart(t, func() {})
	out := run.end(t, 0)
	if len(out.Results) != n {
		t.Fatalf("%d results", len(out.Results))
	}
	for _, r := range out.Results {
		if r.Outcome != "Succeeded" || r.Restarts != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// clusterExpiredWatch: a run goes on when its watch cannot be resumed, and sees what it has missed.
func clusterExpiredWatch(t *testing.T, c onCluster) {
	run := c.begin("run", "-o", "json", "--until", "completed", podDir(t, fmt.Sprintf(sleeper, "missed", "sleep 4s", "")))
	c.awaitRunning(t, "missed")
	c.restart(t, func() {
		if err := c.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if r := run.end(t, 0).Results[0]; r.Outcome != "Succeeded" || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
}

// account makes a service account that may do everything, and returns its token.
func (c onCluster) account(t *testing.T, name string) (token, secret string) {
	t.Helper()
	secret = "/api/v1/namespaces/default/secrets/" + name
	c.apply(t, "/api/v1/namespaces/default/serviceaccounts/"+name, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s}}", name))
	c.apply(t, secret, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}}", name))
	c.apply(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+name, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: default}]
`, name))
	var answer struct {
		Status struct{ Token string }
	}
	text, err := c.Post(t.Context(), "/api/v1/namespaces/default/serviceaccounts/"+name+"/token", fmt.Sprintf(`
apiVersion: authentication.k8s.io/v1
kind: TokenRequest
spec: {audiences: [https://kubernetes.default.svc], boundObjectRef: {apiVersion: v1, kind: Secret, name: %s}}
`, name))
	if err == nil {
		err = json.Unmarshal([]byte(text), &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token, secret
}

// clusterRevokedToken: a run whose token is not valid any more ends, with exit code 4.
func clusterRevokedToken(t *testing.T, c onCluster) {
	token, secret := c.account(t, "revoked")
	m := c.with(t, "token-admin", token)
	run := m.begin("run", "-o", "json", "--log-level", "debug", "--until", "completed", podDir(t, fmt.Sprintf(sleeper, "abandoned", "sleep 5m", "")))
	c.awaitRunning(t, "abandoned")
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.restart(t, func() {}) // which ends the watch
	out := run.end(t, 4)
	if r := out.Results[0]; r.Outcome != "Failed" || r.Reason != "ClusterLost" || !strings.Contains(r.Message, c.Server) {
		t.Errorf("%+v", r)
	}
	if all := run.stdout.String() + run.stderr.String(); strings.Contains(all, token) || !strings.Contains(all, "Unauthorized") {
		t.Errorf("%s", all)
	}
}

// clusterInCluster: in a pod of the cluster the program uses the pod's service account.
func clusterInCluster(t *testing.T, c onCluster) {
	c.account(t, "runner")
	program := filepath.Join(t.TempDir(), "runonce")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(c.Server, "https://"), ":")
	inner := podDir(t, fmt.Sprintf(sleeper, "inner", "sleep 1s", ""))
	outer := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: outer}
spec:
  restartPolicy: Never
  hostNetwork: true
  serviceAccountName: runner
  volumes: [{name: program, hostPath: {path: %[1]s}}, {name: pods, hostPath: {path: %[2]s}}]
  containers:
  - name: main
    image: localhost/box:1
    command: [/program/runonce, run, --kubeconfig, in-cluster, --until, completed, /pods]
    env: [{name: KUBERNETES_SERVICE_HOST, value: %[3]q}, {name: KUBERNETES_SERVICE_PORT, value: %[4]q}]
    volumeMounts: [{name: program, mountPath: /program}, {name: pods, mountPath: /pods}]
`, filepath.Dir(program), inner, host, port)
	c.begin("run", "-o", "json", "--until", "completed", podDir(t, outer)).end(t, 0)
	if log := c.once(t, "logs", "outer"); !strings.Contains(log, "inner  Succeeded") {
		t.Errorf("%s", log)
	}
}
