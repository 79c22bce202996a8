package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const probed = `apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: web
    image: localhost/box:1
    args: [web, -addr, ":8080", -dir, /bin, -delay, 1s]
    ports: [{name: http, containerPort: 8080}]
    lifecycle: {postStart: {exec: {command: [/bin/box, write, /tmp/started, "yes"]}}}
    startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
    livenessProbe: {exec: {command: [/bin/box, cat, /tmp/started]}, periodSeconds: 1}
`

func TestProbes(t *testing.T) {
	b := newBox(t, "")
	got := b.up(t, directory(t, probed), 0, "--until", "ready", "--timeout", "60s")
	if diff := cmp.Diff([]string{"probed=Ready"}, got.report.outcomes()); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	never := strings.NewReplacer("name: probed", "name: never", "path: /healthz", "path: /none", "-delay, 1s", "-delay, 1ms").Replace(probed)
	got = b.up(t, directory(t, never), 1, "--until", "ready", "--timeout", "5s")
	p := got.report.Results[0]
	if p.Outcome != "TimedOut" || !strings.Contains(p.Message, "readiness") || !strings.Contains(p.Message, "404") {
		t.Errorf("%s: %s; want it to name the probe and its answer", p.Outcome, p.Message)
	}
}

func TestLivenessProbeHeals(t *testing.T) {
	b := newBox(t, "")
	// The file that keeps it alive is there only until the probe has looked three times.
	sick := `apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/box:1
    args: [sleep]
    volumeMounts: [{name: count, mountPath: /count}]
    livenessProbe: {exec: {command: [/bin/box, gone, /count/ill]}, periodSeconds: 1, failureThreshold: 1}
  - name: long
    image: localhost/box:1
    args: [do, "sleep 2s", "write /count/ill yes", "sleep 3s", "write /count/done yes", "sleep 30s"]
    readinessProbe: {exec: {command: [/bin/box, cat, /count/done]}, periodSeconds: 1}
    volumeMounts: [{name: count, mountPath: /count}]
  volumes: [{name: count, emptyDir: {}}]
`
	cmd := b.command(t, "run", b.upArgs(t, directory(t, sick), "--until", "completed", "--timeout", "60s")...)
	begin := time.Now()
	out, _ := cmd.Output()
	r := finished(t, cmd, string(out), "")
	if len(r.report.Results) != 1 || r.report.Results[0].Restarts == 0 {
		t.Errorf("after %s: no restart\n%s", time.Since(begin), out)
	}
}
