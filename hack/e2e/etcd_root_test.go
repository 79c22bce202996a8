package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// runTimeout is a bit less than limit, so that a run still reports when it times out.
const runTimeout = "280s"

// etcd is an etcd server that runs from a static pod manifest.
type etcd struct {
	manifest string
	client   *http.Client
	url      string // for clients
	health   string
	data     string
}

// newEtcd imports the image, writes the files that the manifest refers to, and chooses ports.
func newEtcd(t *testing.T, b *box) etcd {
	t.Helper()
	archive, err := etcdArchive()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.dir, "etcd.tar")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := b.run(t, "images", "import", file); r.code != 0 {
		t.Fatalf("importing etcd: exit code %d\n%s", r.code, r.stderr)
	}
	template, err := os.ReadFile("testdata/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.dir, "etcd")
	ports := freePorts(t, 3)
	values := map[string]string{"DIR": dir, "CLIENT_PORT": ports[0], "PEER_PORT": ports[1], "PROBE_PORT": ports[2]}
	config := pki(t, filepath.Join(dir, "pki"))
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return etcd{
		manifest: os.Expand(string(template), func(name string) string { return values[name] }),
		client:   &http.Client{Transport: transport, Timeout: limit},
		url:      "https://127.0.0.1:" + ports[0],
		health:   "http://127.0.0.1:" + ports[2] + "/health",
		data:     filepath.Join(dir, "data"),
	}
}

// freePorts returns unused ports outside the kernel's ephemeral range.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for len(ports) < n {
		port := strconv.Itoa(20000 + rand.IntN(10000))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil || slices.Contains(ports, port) {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// call calls etcd's JSON gateway.
func (e etcd) call(t *testing.T, path string, in any) map[string]any {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v\n%s", path, resp.Status, err, text)
	}
	return out
}

func (e etcd) put(t *testing.T, key, value string) {
	t.Helper()
	e.call(t, "/v3/kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)})
}

// holds fails the test unless the key has the value.
func (e etcd) holds(t *testing.T, key, value string) {
	t.Helper()
	out := e.call(t, "/v3/kv/range", map[string][]byte{"key": []byte(key)})
	want := base64.StdEncoding.EncodeToString([]byte(value))
	if text := fmt.Sprint(out["kvs"]); !strings.Contains(text, want) {
		t.Errorf("%s is %s, want %s", key, text, want)
	}
}

// pid returns the process of the box's etcd.
func (b *box) pid(t *testing.T) int {
	t.Helper()
	for _, p := range b.containers(t) {
		if pid, command, _ := strings.Cut(p, " "); strings.HasPrefix(command, "etcd ") {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no etcd in %v", b.containers(t))
	return 0
}

// isStopped tells whether all threads of the process are stopped.
func isStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && !strings.Contains(string(text), "\nState:\tT ")
	})
}

// restarts returns how often the pod's containers were started again in this run.
func (r report) restarts(pod string) int {
	for _, p := range r.Results {
		if p.Name == pod {
			return p.Restarts
		}
	}
	return -1
}

func TestEtcd(t *testing.T) {
	embedded(t, testEtcd)
	daemons(t, testEtcd, daemon.Current)
}

func testEtcd(t *testing.T, b *box) {
	e := newEtcd(t, b)
	dir := directory(t, e.manifest)
	up := func() report { return b.up(t, dir, 0, "--until", "ready", "--timeout", limit.String()).report }
	if diff := cmp.Diff([]string{"etcd=Ready"}, up().outcomes()); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	e.put(t, "first", "kept")
	e.holds(t, "first", "kept")
	if r := b.run(t, "ps", "-o", "json"); r.code != 0 || len(r.report.Pods) != 1 || r.report.Pods[0].Containers[0].State != "Running" {
		t.Errorf("ps: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	// It is killed while no run is watching, and the next run restarts it.
	if err := syscall.Kill(b.pid(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if n := up().restarts("etcd"); n < 1 {
		t.Errorf("killed and run again: %d restarts", n)
	}
	e.holds(t, "first", "kept")

	if n := e.heal(t, b).restarts("etcd"); n < 1 {
		t.Errorf("frozen: %d restarts", n)
	}
	e.holds(t, "first", "kept")
	e.holds(t, "second", "kept too")

	// Its data survives the pod.
	if r := b.run(t, "down", dir); r.code != 0 {
		t.Fatalf("down: exit code %d\n%s", r.code, r.stderr)
	}
	if _, err := os.Stat(filepath.Join(e.data, "member", "wal")); err != nil {
		t.Error(err)
	}
	up()
	e.holds(t, "second", "kept too")
}

// heal freezes etcd while a run is watching it, so that the liveness probe restarts it, and
// returns the run's report. Another pod keeps the run going until etcd responds again.
func (e etcd) heal(t *testing.T, b *box) report {
	t.Helper()
	signal := filepath.Join(b.dir, "signal")
	witness := strings.Replace(pod("witness", "OnFailure", "do", "await /signal/frozen", "get -timeout 4m "+e.health), "args:", "volumeMounts: [{name: signal, mountPath: /signal}], args:", 1) +
		fmt.Sprintf("  volumes: [{name: signal, hostPath: {path: %s, type: DirectoryOrCreate}}]\n", signal)
	dir := directory(t, e.manifest, witness)
	cmd := b.command(t, "run", b.upArgs(t, dir, "--until", "completed", "--timeout", runTimeout)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.awaitProcess(t, "/bin/box do await /signal/frozen get -timeout 4m "+e.health)
	e.put(t, "second", "kept too")
	pid := b.pid(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Until a thread that waits for the disk has seen the signal, the others still respond.
	if !eventually(func() bool { return isStopped(pid) }) {
		t.Fatalf("process %d did not stop", pid)
	}
	if err := os.WriteFile(filepath.Join(signal, "frozen"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("run: %v after %s\n%s%s", err, time.Since(begin), &stdout, &stderr)
	}
	r := finished(t, cmd, stdout.String(), stderr.String()).report
	if diff := cmp.Diff([]string{"etcd=Ready", "witness=Succeeded"}, r.outcomes()); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	return r
}
