package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/runonce/runonce/runtime/network"
)

// service returns the manifest of a Service that leads to the pods of that name.
func service(name, clusterIP string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, selector: {app: %s}, ports: [{port: 80, targetPort: 8080}]}\n", name, clusterIP, name)
}

// teller returns the manifest of a pod that answers behind a Service with its name.
func teller(name, service string) string {
	m := strings.Replace(pod(name, "Always", "tell", ":8080"), "  hostNetwork: true\n", "", 1)
	m = strings.Replace(m, "args:", "readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 60}, args:", 1)
	return strings.Replace(m, "metadata: {", fmt.Sprintf("metadata: {labels: {app: %s}, ", service), 1)
}

// answer returns who answers at an address: the name of a pod and its port, or an error.
func answer(ip string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, "80"))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	text, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func wantAnswer(t *testing.T, when, ip, want string) {
	t.Helper()
	if got := answer(ip); got != want {
		t.Errorf("%s: %s answers %q, want %q", when, ip, got, want)
	}
}

// awaitAnswers waits until, in many attempts, exactly these have answered.
func awaitAnswers(t *testing.T, w *watcher, ip string, want ...string) {
	t.Helper()
	var got map[string]bool
	if !eventually(func() bool {
		got = map[string]bool{}
		for range 20 {
			got[answer(ip)] = true
		}
		for _, one := range want {
			if !got[one] {
				return false
			}
		}
		return len(got) == len(want)
	}) {
		t.Fatalf("%s answers %v, want %q\n%s", ip, got, want, &w.stderr)
	}
}

// flush deletes the tables of the box. A reload of the machine's firewall deletes all others as well, which other
// boxes need.
func (b *box) flush(t *testing.T) {
	t.Helper()
	tables, err := b.installation().Tables()
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v: %v", tables, err)
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		c.DelTable(table)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestServicesAfterReboot: the next run brings back the rules of Services, also those of other inputs.
func TestServicesAfterReboot(t *testing.T) {
	b, restore := newBoxOnDisk(t, "", "ext4")
	dir := directory(t, service("web", "198.51.100.81"), teller("web", "web"))
	other := directory(t, service("other", "198.51.100.82"), teller("other", "other"))
	b.up(t, dir, 0, "--until", "ready")
	b.up(t, other, 0, "--until", "ready")
	wantAnswer(t, "before", "198.51.100.81", "web:8080")
	b.cutPower(t)
	b.flush(t)
	if bridge, err := netlink.LinkByName(network.BridgeName(filepath.Join(b.dir, "state", "network"))); err != nil || netlink.LinkDel(bridge) != nil {
		t.Fatalf("deleting the bridge: %v", err)
	}
	restore()
	b.up(t, dir, 0, "--until", "ready")
	wantAnswer(t, "after", "198.51.100.81", "web:8080")
	wantAnswer(t, "the other input does not run", "198.51.100.82", "refused")
	b.up(t, other, 0, "--until", "ready")
	wantAnswer(t, "the other input runs", "198.51.100.82", "other:8080")
}

// TestWatchServices: a watch keeps the rules of Services whoever deletes them, and they follow the manifests.
func TestWatchServices(t *testing.T) {
	const web, more = "198.51.100.83", "198.51.100.84"
	b := newBox(t, "")
	dir := directory(t, service("web", web), teller("one", "web"))
	w := b.watch(t, dir)
	awaitAnswers(t, w, web, "one:8080")
	b.flush(t)
	awaitAnswers(t, w, web, "one:8080")
	replace(t, filepath.Join(dir, "two.yaml"), teller("two", "web"))
	replace(t, filepath.Join(dir, "more.yaml"), service("more", more))
	awaitAnswers(t, w, web, "one:8080", "two:8080")
	awaitAnswers(t, w, more, "refused")
	replace(t, filepath.Join(dir, "more.yaml"), strings.Replace(service("more", more), "app: more", "app: web", 1))
	awaitAnswers(t, w, more, "one:8080", "two:8080")
	for _, gone := range []string{"two.yaml", "more.yaml"} {
		if err := os.Remove(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	awaitAnswers(t, w, web, "one:8080")
	if !eventually(func() bool { return !strings.Contains(b.servicesFile(t), more) }) {
		t.Errorf("the Service of a document that is gone is still there: %s", b.servicesFile(t))
	}
	w.send(t, syscall.SIGTERM)
	_ = w.Wait()
	wantAnswer(t, "after the watch", web, "one:8080")
	if r := b.run(t, "down", dir); r.code != 0 || !strings.Contains(r.stdout, "Service default/web removed\n") || strings.Contains(r.stdout, "more") {
		t.Errorf("down: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	b.unchangedServices(t)
}

// TestWatchReadiness: connections to a Service follow the readiness of its pod while a watch goes on.
func TestWatchReadiness(t *testing.T) {
	const web = "198.51.100.86"
	b := newBox(t, "")
	pod := strings.Replace(teller("one", "web"), "{tcpSocket: {port: 8080}, ", `{failureThreshold: 1, exec: {command: [/bin/box, gone, /unready]}, `, 1)
	w := b.watch(t, directory(t, service("web", web), pod))
	awaitAnswers(t, w, web, "one:8080")
	for range 2 {
		b.run(t, "exec", "one", "--", "/bin/box", "write", "/unready", "yes")
		awaitAnswers(t, w, web, "refused")
		b.run(t, "exec", "one", "--", "/bin/box", "remove", "/unready")
		awaitAnswers(t, w, web, "one:8080")
	}
	w.send(t, syscall.SIGTERM)
	_ = w.Wait()
}

// servicesFile is what is on disk of Services.
func (b *box) servicesFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "root", "services.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unchangedServices fails the test if anything of Services is left; the bridge may be.
func (b *box) unchangedServices(t *testing.T) {
	t.Helper()
	if left := b.inspect(t).Services; len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "root", "services.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the Services: %v", err)
	}
}

// TestKilledWithServices: whenever a run or down is killed, the next run has what the manifests say, and down leaves
// nothing.
func TestKilledWithServices(t *testing.T) {
	const ip = "198.51.100.85"
	b := newBox(t, "")
	dir := directory(t, service("web", ip), teller("one", "web"), teller("two", "web"))
	kill := func(name string, args ...string) {
		t.Helper()
		cmd := b.command(t, name, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+rand.IntN(1500)) * time.Millisecond) // at any time
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	for range 5 {
		kill("run", b.upArgs(t, dir)...)
		b.up(t, dir, 0, "--until", "ready")
		if got := answer(ip); got != "one:8080" && got != "two:8080" {
			t.Errorf("after a run that was killed: %q", got)
		}
		kill("down", "--all")
		if r := b.run(t, "down", "--all"); r.code != 0 {
			t.Fatalf("down --all: exit code %d\n%s", r.code, r.stderr)
		}
		b.unchanged(t)
	}
	kill("run", b.upArgs(t, dir)...)
}
