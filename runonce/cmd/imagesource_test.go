package cmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/engine"
)

// imagePod is a pod whose images are those given: of an init container, a sidecar, a container and
// a volume.
func imagePod(t *testing.T, name string, images [4]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  restartPolicy: Never
  hostNetwork: true
  initContainers:
  - {name: init, image: "` + images[0] + `", args: [exit, "0"]}
  - {name: side, image: "` + images[1] + `", restartPolicy: Always, args: [sleep]}
  containers:
  - {name: main, image: "` + images[2] + `", args: [sleep], volumeMounts: [{name: v, mountPath: /v}]}
  volumes:
  - {name: v, image: {reference: "` + images[3] + `"}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const boxRef = "localhost/box:1"

// report is the part of a report that the tests below look at.
type shortReport struct {
	ExitCode int
	Faults   []struct {
		File, Field, Message string
		Line                 int
	}
	Results []struct {
		Name, Outcome, UID string
		Attempts           int
		Containers         []struct{ Name, Image, ImageID, Digest string }
	}
}

func reportOf(t *testing.T, got invocation) shortReport {
	t.Helper()
	var r shortReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return r
}

// TestOffline: every missing image is a fault with its place, and nothing starts or is pulled.
func TestOffline(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	path := imagePod(t, "far", [4]string{"localhost/far-init:1", "localhost/far-side:1", "localhost/far-main:1", "localhost/data:1"})
	near := imagePod(t, "near", [4]string{boxRef, boxRef, boxRef, boxRef})
	run := []string{"run", "--offline", "-o", "json", "--node", nodeFile(), "--settle", "0"}
	got := invoke(t, m, append(run, path, near)...)
	var faults []string
	for _, f := range reportOf(t, got).Faults {
		faults = append(faults, strings.Join([]string{filepath.Base(f.File), string(rune('0' + f.Line/10)), string(rune('0' + f.Line%10)), f.Field}, " "))
	}
	want := []string{
		"far.yaml 0 8 spec.initContainers[0].image", "far.yaml 0 9 spec.initContainers[1].image",
		"far.yaml 1 1 spec.containers[0].image", "far.yaml 1 3 spec.volumes[0].image.reference",
	}
	if diff := cmp.Diff(want, faults); got.code != 2 || diff != "" {
		t.Errorf("code %d: %s", got.code, diff)
	}
	if !strings.Contains(got.stderr, "nothing was started") {
		t.Errorf("stderr %s", got.stderr)
	}
	if all, err := m.engine.Containers(t.Context(), ""); err != nil || len(all) > 0 {
		t.Errorf("started %v, %v", all, err)
	}
	r := reportOf(t, invoke(t, m, append(run, "--skip-invalid", path, near)...))
	if len(r.Results) != 2 || r.Results[0].Name != "near" || r.Results[0].Outcome != "Running" || r.Results[1].Name != "far" || r.Results[1].Outcome != "Invalid" {
		t.Errorf("with --skip-invalid: %+v", r)
	}
	if got := invoke(t, m, append(run, "--skip-invalid", path)...); got.code != 2 {
		t.Errorf("without a valid pod: %+v", got)
	}
	if pulls := m.engine.Pulls(); len(pulls) > 0 {
		t.Errorf("pulled %v", pulls)
	}
	here := cmd.IO{Open: m.open, Machine: os.DirFS("/")}
	if got := invokeWith(t, here, "plan", "--offline", path, "--root", m.root, "--state", filepath.Join(m.root, "state")); got.code != 2 || strings.Count(got.stderr, "is not present, and --offline pulls nothing") != 4 {
		t.Errorf("plan: %+v", got)
	}
}

func TestImageFlags(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	pod := manifest(t, "web", "Always", "[sleep]")
	for _, tt := range []struct{ args, want string }{
		{"run --offline --pull always", "--offline pulls nothing: it cannot be used with --pull=always"},
		{"run --pull sometimes", `--pull "sometimes": must be missing, always, never or newer`},
		{"run --parallel-pulls 0", "--parallel-pulls 0: must be at least 1"},
		{"plan --offline --capacity cpu=1", "--offline is about the images on this machine"},
		{"plan --images-dir x --node y", "--images-dir is about the images on this machine"},
		{"run --kubeconfig x --offline", "--offline is about this machine and has no meaning on a cluster"},
		{"run --kubeconfig x --pull never", "--pull is about this machine and has no meaning on a cluster"},
		{"run --kubeconfig x --lock f", "--lock is about this machine and has no meaning on a cluster"},
		{"run --require-digest", "is not given by its digest"},
		{"validate --require-digest", "is not given by its digest"},
		{"images pull --max-retries -1", "--max-retries -1: must not be negative"},
	} {
		if got := invokeWith(t, cmd.IO{Open: m.open}, append(strings.Fields(tt.args), pod)...); got.code != 2 || !strings.Contains(got.stdout+got.stderr, tt.want) {
			t.Errorf("%s: %+v", tt.args, got)
		}
	}
}

// far puts an image into the registry.
func (m *memory) far(ref, digest string) {
	m.engine.Registry = map[string]engine.Image{ref: {Ref: ref, ID: digest, Digest: digest, Size: 1, Entrypoint: []string{"/bin/box"}}}
}

// TestLock: a lock gets the digests that it lacks, before anything starts, and a second run with
// it starts nothing.
func TestLock(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	const farRef = "localhost/far:1"
	m.far("localhost/far@"+digestOf("far"), digestOf("far"))
	m.engine.Registry[farRef] = m.engine.Registry["localhost/far@"+digestOf("far")]
	lock := filepath.Join(t.TempDir(), "images.lock")
	path := imagePod(t, "web", [4]string{boxRef, boxRef, farRef, boxRef})
	run := []string{"run", path, "--lock", lock, "--require-digest", "-o", "json", "--node", nodeFile(), "--settle", "0"}
	first := reportOf(t, invoke(t, m, run...))
	if first.ExitCode != 0 || len(first.Results) != 1 || first.Results[0].Attempts != 1 {
		t.Fatalf("%+v", first)
	}
	var images []string
	for _, c := range first.Results[0].Containers {
		images = append(images, c.Name+" "+c.Image+" "+c.Digest)
	}
	want := []string{
		"init " + boxRef + "@" + digestOf("box") + " " + digestOf("box"), "side " + boxRef + "@" + digestOf("box") + " " + digestOf("box"),
		"main " + farRef + "@" + digestOf("far") + " " + digestOf("far"),
	}
	if diff := cmp.Diff(want, images); diff != "" {
		t.Error(diff)
	}
	text, err := os.ReadFile(lock)
	content := "apiVersion: runonce/v1\nkind: ImageLock\nimages:\n  " + boxRef + ": " + digestOf("box") + "\n  " + farRef + ": " + digestOf("far") + "\n"
	if err != nil || string(text) != content {
		t.Errorf("%s, %v", text, err)
	}
	m.far(farRef, digestOf("moved")) // the registry has another one now
	second := reportOf(t, invoke(t, m, run...))
	if second.ExitCode != 0 || second.Results[0].Attempts != 0 || second.Results[0].UID != first.Results[0].UID {
		t.Errorf("second run: %+v", second)
	}
	if again, err := os.ReadFile(lock); err != nil || string(again) != content {
		t.Errorf("%s, %v", again, err)
	}
	// Without an engine, what the lock has is enough.
	if got := invoke(t, m, "plan", path, "--lock", lock, "--node", nodeFile()); got.code != 0 {
		t.Errorf("plan: %+v", got)
	}
	if got := invoke(t, m, "plan", path, "--lock", lock+"2", "--node", nodeFile()); got.code != 2 || !strings.Contains(got.stderr, "web.yaml:11: spec.containers[0].image: its digest is unknown") {
		t.Errorf("plan: %+v", got)
	}
}

// TestLockFails: without a digest nothing starts and no lock is written.
func TestLockFails(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	path := imagePod(t, "web", [4]string{boxRef, boxRef, "localhost/far:1", boxRef})
	lock := filepath.Join(t.TempDir(), "images.lock")
	run := []string{"run", path, "--lock", lock, "--node", nodeFile(), "--settle", "0"}
	if got := invoke(t, m, run...); got.code != 2 || !strings.Contains(got.stderr, "web.yaml:11: spec.containers[0].image: its digest is unknown: ") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(lock); err == nil {
		t.Error("the lock was written")
	}
	if err := os.WriteFile(lock, []byte("kind: Pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, m, run...); got.code != 2 || !strings.Contains(got.stderr, lock+":1: kind: ") {
		t.Errorf("malformed lock: %+v", got)
	}
}

// TestPlanRetries: what a run retries to find the digest of an image, a plan retries as well.
func TestPlanRetries(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	m.far("localhost/far:1", digestOf("far"))
	refused := errors.New("connection refused")
	m.engine.ResolveErrors = map[string][]error{"localhost/far:1": {refused, refused}}
	lock := filepath.Join(t.TempDir(), "images.lock")
	plan := []string{"plan", imagePod(t, "web", [4]string{boxRef, boxRef, "localhost/far:1", boxRef}), "--lock", lock}
	plan = append(plan, "--retry-delay", "1ms", "--root", m.root, "--state", filepath.Join(m.root, "state"))
	here := cmd.IO{Open: m.open, Machine: os.DirFS("/")}
	if got := invokeWith(t, here, append(plan, "--max-retries", "0")...); got.code != 4 || !strings.Contains(got.stderr, "connection refused") {
		t.Errorf("without retries: %+v", got)
	}
	if got := invokeWith(t, here, plan...); got.code == 4 || got.code == 2 {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile(lock); err != nil || !strings.Contains(string(text), digestOf("far")) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestImagesPull: each image of the manifests is pulled once, and a failure is exit code 1.
func TestImagesPull(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	m.far("localhost/far:1", digestOf("far"))
	m.engine.PullErrors = map[string][]error{"localhost/far:1": {errors.New("connection refused")}}
	path := imagePod(t, "web", [4]string{boxRef, "localhost/far:1", "localhost/far:1", "localhost/none:1"})
	got := invoke(t, m, "images", "pull", path, "-o", "json", "--retry-delay", "1ms")
	checkDocument(t, []string{"images", "pull"}, got.stdout)
	var document struct {
		ExitCode int
		Images   []struct{ Name, Digest, Outcome, Message string }
	}
	if err := json.Unmarshal([]byte(got.stdout), &document); err != nil || got.code != 1 || document.ExitCode != 1 || len(document.Images) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	for i, want := range []string{"Present", "Pulled", "Failed"} {
		if image := document.Images[i]; image.Outcome != want || (image.Message != "") != (want == "Failed") || (image.Digest == "") != (want == "Failed") {
			t.Errorf("%+v, want %s", image, want)
		}
	}
	if all, err := m.engine.Containers(t.Context(), ""); err != nil || len(all) > 0 {
		t.Errorf("started %v, %v", all, err)
	}
	good := imagePod(t, "web", [4]string{boxRef, "localhost/far:1", boxRef, boxRef})
	if got := invoke(t, m, "images", "pull", good); got.code != 0 || !regexp.MustCompile(`localhost/far:1 +Present +sha256:`).MatchString(got.stdout) {
		t.Errorf("%+v", got)
	}
	m.engine.Registry = nil
	if got := invoke(t, m, "images", "pull", good, "--pull", "newer"); got.code != 0 {
		t.Errorf("without the registry: %+v", got)
	}
	if got := invoke(t, m, "images", "pull", good, "--pull", "always"); got.code != 1 {
		t.Errorf("--pull=always without the registry: %+v", got)
	}
}

// TestImagesRemove: an image that a pod uses stays until that is gone.
func TestImagesRemove(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	for ref := range m.engine.Store {
		if ref != boxRef {
			delete(m.engine.Store, ref)
		}
	}
	m.engine.Store["localhost/old:1"] = engine.Image{Ref: "localhost/old:1", Digest: digestOf("old"), Size: 1_500_000}
	m.engine.Store["localhost/older:1"] = engine.Image{Ref: "localhost/older:1", Digest: digestOf("older"), Size: 1_500_000}
	pod := manifest(t, "web", "Always", "[sleep]")
	if got := invoke(t, m, "run", pod, "--node", nodeFile(), "--settle", "0"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := invoke(t, m, "images", "list"); !regexp.MustCompile(`(?m)^localhost/box:1 +sha256:\w+ +2.9 MB +default/web$`).MatchString(got.stdout) {
		t.Errorf("%+v", got)
	}
	for _, tt := range []struct {
		args, stdout, stderr string
		code                 int
	}{
		{"rm localhost/box:1", "", `image "localhost/box:1" is used by default/web`, 2},
		{"rm localhost/none", "", `image "localhost/none" is not present`, 2},
		{"rm", "", "no IMAGE given", 2},
		{"prune x", "", "takes no arguments", 2},
		{"rm localhost/older:1", "localhost/older:1 removed\n1.5 MB freed\n", "", 0},
		{"prune", "localhost/old:1 removed\n1.5 MB freed\n", "", 0},
		{"prune", "0.0 MB freed\n", "", 0},
	} {
		got := invoke(t, m, append([]string{"images"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || got.stdout != tt.stdout || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("images %s: %+v", tt.args, got)
		}
	}
	m.engine.Store["localhost/other:1"] = engine.Image{Ref: "localhost/other:1", Digest: digestOf("other"), Size: 1}
	if got := invoke(t, m, "down", pod, "--images"); got.code != 0 || !strings.Contains(got.stdout, "localhost/box:1 removed\n2.9 MB freed\n") || strings.Contains(got.stdout, "other") {
		t.Errorf("down --images: %+v", got)
	}
}

// TestPullList: images of a list are pulled as those of manifests, each once, and no events are kept of them.
func TestPullList(t *testing.T) {
	t.Parallel()
	const far = "localhost/far:1"
	list := func(text string) string {
		path := filepath.Join(t.TempDir(), "images.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := newMemory(t)
	m.far(far, digestOf("far"))
	want := "IMAGE            OUTCOME  DIGEST\nlocalhost/box:1  Present  " + digestOf("box") + "\nlocalhost/far:1  Pulled   " + digestOf("far") + "\n"
	text := "# of release 1\n\n  localhost/far:1 \nlocalhost/box:1\r\nlocalhost/far:1"
	if got := invoke(t, m, "images", "pull", "--list", list(text)); got.code != 0 || got.stdout != want {
		t.Errorf("%+v", got)
	}
	if entries, err := os.ReadDir(filepath.Join(m.root, "log")); err == nil && len(entries) > 0 {
		t.Errorf("it leaves %v", entries)
	}
	world := cmd.IO{Open: m.open, Stdin: strings.NewReader(boxRef)}
	if got := invokeWith(t, world, "images", "pull", "--list", "-", manifest(t, "web", "Always", "[sleep]"), "--root", m.root, "--state", filepath.Join(m.root, "state")); got.code != 0 || strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("standard input and a manifest: %+v", got)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--list", list("localhost/box:1\nA B\n")}, `images.txt:2: couldn't parse image name "A B"`},
		{[]string{"--list", list("# none\n")}, "--list: no image in "},
		{[]string{"--list", "/absent"}, "--list: open /absent: no such file or directory"},
		{[]string{"--list", "-", "-"}, "standard input is the list or a manifest, not both"},
		{[]string{"--list", list(far), "--require-digest"}, "--lock and --require-digest are about manifests"},
		{nil, "no PATH given"},
	} {
		if got := invoke(t, m, append([]string{"images", "pull"}, tt.args...)...); got.code != 2 || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%q: %+v", tt.args, got)
		}
	}
}
