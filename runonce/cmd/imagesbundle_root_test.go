package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd"
)

// skopeo runs skopeo, which hack/setup.sh unpacks with its libraries.
func skopeo(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("skopeo")
	if err != nil {
		t.Fatal(err)
	}
	var libraries []string
	for _, pattern := range []string{"../lib/*-linux-gnu", "../../lib/*-linux-gnu"} {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(path), pattern))
		if err != nil {
			t.Fatal(err)
		}
		libraries = append(libraries, found...)
	}
	c := exec.CommandContext(t.Context(), path, append([]string{"--insecure-policy"}, args...)...)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("skopeo %v: %v\n%s", args, err, out)
	}
}

// TestBundleOfRegistry: what a bundle has from a registry runs where there is none. The images are
// skopeo's, and one comes from an archive of its. A lock keeps them when the registry has others.
func TestBundleOfRegistry(t *testing.T) {
	roottest.Require(t)
	server := registry.Start(t, registry.Options{})
	host := server.Host
	dir, archives := t.TempDir(), t.TempDir()
	plain, lock, first, second := filepath.Join(dir, "box.tar"), filepath.Join(dir, "lock"), filepath.Join(dir, "1.tar.zst"), filepath.Join(dir, "2.tar.zst")
	far, local := host+"/far:1", "localhost/sk:1"
	push := func(size int) {
		archiveOf(t, plain, ociimage.Build, boxImage(t, far, size))
		skopeo(t, "copy", "--dest-tls-verify=false", "oci-archive:"+plain, "docker://"+far)
	}
	push(1 << 10)
	skopeo(t, "copy", "oci-archive:"+plain, "docker-archive:"+filepath.Join(archives, "sk.tar")+":"+local)
	pods := podDir(t, oncePod("far", far)+"---\n"+oncePod("near", local))
	bundle := func(file string) {
		t.Helper()
		var errs bytes.Buffer
		args := []string{"runonce", "images", "bundle", pods, "--images-dir", archives, "--lock", lock, "-o", file}
		process := cmd.IO{Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" }}
		if code := cmd.Main(t.Context(), args, process); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, &errs)
		}
	}
	bundle(first)
	push(2 << 10)
	bundle(second)
	one, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.ReadFile(second); err != nil || !bytes.Equal(one, two) {
		t.Errorf("other bytes with the same lock, %v", err)
	}
	both, source := host+"/both:1", filepath.Join(dir, "both.tar")
	var b bytes.Buffer
	if err := ociimage.BuildIndex(&b, both, twoPlatforms()...); err != nil {
		t.Fatal(err)
	}
	keep(t, source, b.Bytes())
	skopeo(t, "copy", "--all", "--preserve-digests", "--dest-tls-verify=false", "oci-archive:"+source, "docker://"+both)
	checkPlatforms(t, dir, source, both)
	m := newMachine(t, first)
	run := func() shortReport {
		t.Helper()
		var r shortReport
		out := m.once(t, "run", "--until", "completed", "--lock", lock, "--require-digest", "--images-dir", first, "-o", "json", pods)
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Results) != 2 {
			t.Fatalf("%v: %s", err, out)
		}
		return r
	}
	server.Stop()
	r := run()
	for _, pod := range r.Results {
		c := pod.Containers[0]
		if pod.Outcome != "Succeeded" || c.Digest == "" || !strings.HasSuffix(c.Image, ":1@"+c.Digest) {
			t.Errorf("%+v", pod)
		}
	}
	if again := run(); again.Results[0].Attempts != 0 || again.Results[0].UID != r.Results[0].UID {
		t.Errorf("second run: %+v", again)
	}
	m.once(t, "run", "--offline", "--rerun", "--until", "completed", pods) // without the lock
}

// TestPullAhead: images that were pulled ahead need no registry, and one that is newer is pulled
// when it is asked for.
func TestPullAhead(t *testing.T) {
	roottest.Require(t)
	server := registry.Start(t, registry.Options{})
	host := server.Host
	plain, far := filepath.Join(t.TempDir(), "box.tar"), host+"/far:1"
	push := func(size int) {
		archiveOf(t, plain, ociimage.Build, boxImage(t, far, size))
		skopeo(t, "copy", "--dest-tls-verify=false", "oci-archive:"+plain, "docker://"+far)
	}
	push(1 << 10)
	pods := podDir(t, oncePod("far", far))
	m := newMachine(t, boxImages(t))
	pull := func(when, want string) {
		t.Helper()
		if out := m.once(t, "images", "pull", "--pull", when, pods); !strings.Contains(out, want) {
			t.Errorf("--pull=%s: %s", when, out)
		}
	}
	m.fails(t, 1, "images", "pull", "--pull", "never", pods)
	pull("missing", "Pulled")
	pull("missing", "Present")
	pull("newer", "Present")
	bundle := filepath.Join(t.TempDir(), "bundle.tar")
	for arch, code := range map[string]int{"s390x": 1, runtime.GOARCH: 0} {
		got := invokeWith(t, cmd.IO{}, "images", "bundle", "--platform", "linux/"+arch, "-o", bundle, pods)
		if got.code != code || code != 0 && !strings.Contains(got.stderr, "there is none for linux/s390x, only for linux/"+runtime.GOARCH) {
			t.Errorf("%+v", got)
		}
	}
	push(2 << 10)
	pull("missing", "Present")
	pull("newer", "Pulled")
	server.Stop()
	pull("newer", "Present")
	m.fails(t, 1, "images", "pull", "--max-retries", "0", "--pull", "always", pods)
	m.once(t, "run", "--offline", "--until", "completed", pods)
	m.once(t, "down", "--images", pods)
	if _, ok := m.images(t)[far]; ok {
		t.Error("down --images has left the pulled image")
	}
}
