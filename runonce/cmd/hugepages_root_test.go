package cmd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
)

const pagesFile = "/proc/sys/vm/nr_hugepages"

// reservePages has the kernel put so many more pages of the default size aside.
func reservePages(t *testing.T, n int) {
	t.Helper()
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		roottest.Lacks(t, "huge pages of 2 MiB")
	}
	text, err := os.ReadFile(pagesFile)
	if err != nil {
		t.Fatal(err)
	}
	before, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	set := func(n int) {
		if err := os.WriteFile(pagesFile, []byte(strconv.Itoa(n)), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { set(before) })
	// Free memory may lie in pieces that are too small.
	for _, file := range []string{"drop_caches", "compact_memory"} {
		if err := os.WriteFile("/proc/sys/vm/"+file, []byte("1"), 0o644); err != nil {
			t.Log(err)
		}
	}
	set(before + n)
	text, err = os.ReadFile(pagesFile)
	if err != nil {
		t.Fatal(err)
	}
	if now := strings.TrimSpace(string(text)); now != strconv.Itoa(before+n) {
		t.Fatalf("the kernel has %s huge pages, want %d", now, before+n)
	}
}

// limitsPages says whether cgroups of the machine can limit huge pages.
func limitsPages() bool {
	if _, err := os.Stat("/sys/fs/cgroup/hugetlb"); err == nil {
		return true
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}

// TestHugePages: huge pages are counted, given by an emptyDir, and no more than the limit.
func TestHugePages(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	reservePages(t, 8)
	manifest := filepath.Join(podDir(t, `apiVersion: v1
kind: Pod
metadata: {name: paged}
spec:
  restartPolicy: Never
  hostNetwork: true
  containers:
  - name: within
    image: localhost/box:1
    args: [huge, /huge/a, "4"]
    resources: {limits: {hugepages-2Mi: 4Mi, memory: 64Mi, cpu: 100m}}
    volumeMounts: [{name: huge, mountPath: /huge}]
  - name: beyond
    image: localhost/box:1
    args: [huge, /huge/b, "4"]
    resources: {limits: {hugepages-2Mi: 2Mi, memory: 64Mi, cpu: 100m}}
    volumeMounts: [{name: huge, mountPath: /huge}]
  volumes: [{name: huge, emptyDir: {medium: HugePages}}]
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers:
  - {name: main, image: localhost/box:1, resources: {limits: {hugepages-2Mi: 64Gi, memory: 64Mi, cpu: 100m}}}
`), "pods.yaml")
	want := map[string]string{"within": "holding 4 MiB", "beyond": "holding 4 MiB"}
	code := 3 // one is rejected
	if limitsPages() {
		want["beyond"] = "SIGBUS"
		code = 1
	} else {
		t.Log("no controller limits huge pages here")
	}
	out := m.fails(t, code, "run", "--until", "completed", "--timeout", "10m", "-o", "wide", manifest)
	if !strings.Contains(out, "OutOfhugepages-2Mi") {
		t.Errorf("no pod is short of huge pages:\n%s", out)
	}
	for container, text := range want {
		if log := m.log(t, "paged", container); !strings.Contains(log, text) {
			t.Errorf("%s wrote no %q:\n%s\n%s", container, text, log, out)
		}
	}
}
