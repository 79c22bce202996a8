package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/hack/daemon"
)

// inside is what the inspect applet prints, as far as it is looked at here.
type inside struct {
	Env      []string            `json:"env"`
	Hostname string              `json:"hostname"`
	Groups   []int               `json:"groups"`
	Hosts    string              `json:"hosts"`
	Resolv   string              `json:"resolvConf"`
	Sysctls  map[string]string   `json:"sysctls"`
	Files    map[string]seenFile `json:"files"`
	Mounts   []seenMount         `json:"mounts"`
}

type seenFile struct {
	Mode    string `json:"mode"`
	GID     uint32 `json:"gid"`
	Content string `json:"content"`
	Error   string `json:"error"`
}

type seenMount struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

const featured = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: featured, labels: {tier: web}, annotations: {note: "hi"}}
spec:
  hostname: front
  subdomain: pool
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  hostAliases: [{ip: 10.1.2.3, hostnames: [db, db.internal]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [corp.example], options: [{name: ndots, value: "3"}]}
  securityContext:
    runAsUser: 1000
    fsGroup: 3000
    supplementalGroups: [4000]
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]
  initContainers:
  - {name: beside, image: localhost/box:1, restartPolicy: Always, args: [sleep]}
  containers:
  - name: main
    image: localhost/box:1
    args: [inspect, -stat, "/proj/color,/proj/token,/proj/labels,/scratch,/mem,/sub", -sysctl, net.ipv4.ip_unprivileged_port_start]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
    env:
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    volumeMounts:
    - {name: proj, mountPath: /proj}
    - {name: scratch, mountPath: /scratch}
    - {name: mem, mountPath: /mem}
    - {name: scratch, mountPath: /sub, subPathExpr: "of-$(WHO)"}
  volumes:
  - name: proj
    projected:
      sources:
      - configMap: {name: settings}
      - secret: {name: keys, items: [{key: token, path: token, mode: 0400}]}
      - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
  - {name: scratch, emptyDir: {}}
  - {name: mem, emptyDir: {medium: Memory}}
`

func TestFeaturesFromInside(t *testing.T) {
	places := map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"2.4":      func(t *testing.T) string { return served(t, daemon.Current).Socket },
		"1.6":      func(t *testing.T) string { return served(t, daemon.Debian).Socket },
	}
	for name, address := range places {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, address(t))
			b.up(t, directory(t, featured), 0, "--until", "completed")
			checkFeatures(t, b.inspect(t, "featured", "main"))
		})
	}
}

// inspect reads what the inspect applet printed in a container.
func (b *box) inspect(t *testing.T, pod, container string) inside {
	t.Helper()
	r := b.run(t, "logs", pod, "-c", container)
	var v inside
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("logs: exit code %d: %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	return v
}

func checkFeatures(t *testing.T, v inside) {
	t.Helper()
	if v.Hostname != "front" {
		t.Errorf("hostname %q", v.Hostname)
	}
	for _, want := range []string{"10.1.2.3\tdb\tdb.internal", "\tfront.pool.default.svc.cluster.local\tfront"} {
		if !strings.Contains(v.Hosts, want) {
			t.Errorf("/etc/hosts lacks %q:\n%s", want, v.Hosts)
		}
	}
	if want := "nameserver 192.0.2.53\nsearch corp.example\noptions ndots:3"; v.Resolv != want && !sameLines(v.Resolv, want) {
		t.Errorf("/etc/resolv.conf:\n%s", v.Resolv)
	}
	if !slices.Contains(v.Groups, 3000) || !slices.Contains(v.Groups, 4000) {
		t.Errorf("groups %v, want 3000 and 4000 among them", v.Groups)
	}
	if diff := cmp.Diff(map[string]string{"net.ipv4.ip_unprivileged_port_start": "80"}, v.Sysctls); diff != "" {
		t.Errorf("sysctls (-want +got):\n%s", diff)
	}
	for _, want := range []string{"CPU=500", "WHO=featured"} {
		if !slices.Contains(v.Env, want) {
			t.Errorf("no variable %s in %v", want, v.Env)
		}
	}
	for path, want := range map[string]string{"/proj/color": "blue", "/proj/token": "s3cret", "/proj/labels": `tier="web"`} {
		if got := v.Files[path]; strings.TrimSpace(got.Content) != want || got.GID != 3000 {
			t.Errorf("%s = %+v, want %q of group 3000", path, got, want)
		}
	}
	for _, path := range []string{"/scratch", "/mem", "/sub"} {
		if got := v.Files[path]; got.Error != "" || got.GID != 3000 {
			t.Errorf("%s = %+v, want it of group 3000", path, got)
		}
	}
	if !slices.Contains(v.Mounts, seenMount{"/mem", "tmpfs"}) {
		t.Errorf("/mem is no tmpfs: %v", v.Mounts)
	}
}

// sameLines compares lines whatever their order.
func sameLines(a, b string) bool {
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(left)
	slices.Sort(right)
	return slices.Equal(left, right)
}

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
