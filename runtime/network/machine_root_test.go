package network

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// newManager returns a manager with directories of its own and checks at the end that the
// machine is as it was before.
func newManager(t *testing.T) *Manager {
	t.Helper()
	roottest.Require(t)
	dir := t.TempDir()
	return newManagerIn(t, Options{
		Records:    record.Open(dir, dir),
		StateDir:   filepath.Join(dir, "state"),
		DataDir:    filepath.Join(dir, "data"),
		CNIConfDir: filepath.Join(dir, "net.d"),
		HostIPs:    []string{"192.0.2.99"},
	})
}

// eachFirewall runs a test on a machine with iptables and on one with nft alone.
func eachFirewall(t *testing.T, test func(t *testing.T, m *Manager)) {
	t.Helper()
	roottest.Require(t)
	for _, program := range []string{"iptables", "nft"} {
		t.Run(program, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{
				Records:    record.Open(dir, dir),
				StateDir:   filepath.Join(dir, "state"),
				DataDir:    filepath.Join(dir, "data"),
				CNIConfDir: filepath.Join(dir, "net.d"),
			}
			if program == "nft" {
				o.Path = onlyNFT(t)
			}
			test(t, newManagerIn(t, o))
		})
	}
}

// onlyNFT returns a directory that has no iptables.
func onlyNFT(t *testing.T) string {
	t.Helper()
	return pathOf(t, "nft")
}

func newManagerIn(t *testing.T, o Options) *Manager {
	t.Helper()
	roottest.Require(t)
	m := New(o)
	before := traces(t, m)
	t.Cleanup(func() {
		if err := m.Cleanup(context.Background()); err != nil {
			t.Errorf("Cleanup: %v", err)
		}
		if diff := cmp.Diff(before, traces(t, m)); diff != "" {
			t.Errorf("left on the machine (-before +after):\n%s", diff)
		}
	})
	return m
}

// traces returns what can be seen of pods' networks on the machine: mounts, links, rules,
// files.
func traces(t *testing.T, m *Manager) []string {
	t.Helper()
	var found []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, m.o.StateDir) {
			found = append(found, "mount: "+line)
		}
	}
	links, err := Listed(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		found = append(found, "link: "+l.Attrs().Name)
	}
	var rules []byte
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), program).Output()
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, out...)
	}
	for line := range strings.SplitSeq(string(rules), "\n") {
		// A built-in chain exists from the first time that its table is listed.
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, ":") && !strings.Contains(line, " ACCEPT [") {
			found = append(found, "rule: "+regexp.MustCompile(`\[.*\]`).ReplaceAllString(line, ""))
		}
	}
	tables, err := exec.CommandContext(context.WithoutCancel(t.Context()), "nft", "list", "tables").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(tables)) {
		if strings.HasPrefix(line, "table inet ") { // others are iptables'
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return append(found, filesBelow(t, m.o.StateDir, m.o.DataDir)...)
}

func filesBelow(t *testing.T, roots ...string) []string {
	t.Helper()
	var found []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				found = append(found, "file: "+path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func newPod(name string, edit ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	for _, e := range edit {
		e(pod)
	}
	return pod
}

// locked is a Manager whose caller holds the lock of the pod that it works on.
type locked struct{ *Manager }

func holding(m *Manager) locked { return locked{m} }

func (l locked) Ensure(ctx context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	lock, err := l.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return engine.Sandbox{}, err
	}
	defer lock.Release()
	return l.Manager.Ensure(ctx, pod, lock)
}

// Remove forgets the pod as well.
func (l locked) Remove(ctx context.Context, pod *v1.Pod) error {
	lock, err := l.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	if err := l.Manager.Remove(ctx, pod, lock); err != nil {
		lock.Release()
		return err
	}
	lock.Discard()
	return l.o.Records.Remove(pod.UID)
}

func ensure(t *testing.T, m *Manager, pod *v1.Pod) engine.Sandbox {
	t.Helper()
	sb, err := holding(m).Ensure(t.Context(), pod)
	if err != nil {
		t.Fatalf("Ensure(%s): %v", pod.Name, err)
	}
	t.Cleanup(func() {
		if err := holding(m).Remove(context.Background(), pod); err != nil {
			t.Errorf("Remove(%s): %v", pod.Name, err)
		}
	})
	return sb
}

// serve answers HTTP requests to port 80 of the sandbox with the given text.
func serve(t *testing.T, sb engine.Sandbox, text string) {
	t.Helper()
	serveIn(t, sb.NetNS, 80, text)
}

// serveIn answers HTTP requests to a port in a network namespace.
func serveIn(t *testing.T, path string, port int, text string) {
	t.Helper()
	var l net.Listener
	err := namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: path}}, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text)
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// get fetches from addr out of the network namespace at netns, empty for the host's.
func get(t *testing.T, from, addr string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var body string
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: from}}, func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	body = string(data)
	return body, err
}

func wantAnswer(t *testing.T, from, addr, want string) {
	t.Helper()
	got, err := get(t, from, addr)
	if err != nil || got != want {
		t.Errorf("get %s from %q = %q, %v, want %q", addr, from, got, err, want)
	}
}
