package containerd_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// mib is what containerd writes of a blob at once.
const mib = 1 << 20

// layer stands for the layer of a dataImage in the path of a rule.
const layer = "LAYER"

// pushData pushes a dataImage and starts a proxy before its registry.
func pushData(t *testing.T, r *registry.Registry, name string, size int, rules ...registry.Rule) *registry.Proxy {
	t.Helper()
	manifest := r.Push(t, name, dataImage(t, size))
	rules = slices.Clone(rules)
	for i := range rules {
		if rules[i].Path == layer {
			rules[i].Path = manifest.Layers[0].Digest.String()
		}
	}
	return registry.NewProxy(t, r, rules...)
}

// parts returns how many requests for a part of a blob a proxy has got.
func parts(all []*http.Request) int {
	n := 0
	for _, r := range all {
		if r.Header.Get("Range") != "" {
			n++
		}
	}
	return n
}

// dataImage has data that no other image has, and that cannot be compressed.
func dataImage(t *testing.T, size int) ociimage.Image {
	t.Helper()
	data := make([]byte, size)
	if _, err := crand.Read(data); err != nil {
		t.Fatal(err)
	}
	return ociimage.Image{
		Ref:         "registry.example/data:1",
		Files:       []ociimage.File{{Path: "/data", Body: data}, {Path: "/etc/passwd", Body: []byte("app:x:1000:1000:app:/:/bin/false\n")}},
		Compression: ociimage.None,
	}
}

// openWith opens an engine without credentials or hosts files of this machine.
func (p testDirs) openWith(t *testing.T, change func(*containerd.Options)) *containerd.Engine {
	t.Helper()
	o := p.options()
	o.CertsDir = t.TempDir()
	o.Credentials.Getenv = func(string) string { return "" }
	if change != nil {
		change(&o)
	}
	e, err := containerd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestPull(t *testing.T) {
	p := newTestDirs(t)
	r := registry.Start(t, registry.Options{Users: true})
	r.Push(t, "team/data:1", dataImage(t, 1))
	ref := r.Host + "/team/data:1"
	auth := filepath.Join(t.TempDir(), "auth.json")
	login := func(password string) {
		t.Helper()
		text := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, r.Host+"/team", registry.User, password)
		if err := os.WriteFile(auth, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := p.openWith(t, func(o *containerd.Options) { o.Credentials.AuthFile = auth })

	login("wrong")
	if _, err := e.Pull(t.Context(), ref); !failure.IsPermanent(err) || !strings.Contains(err.Error(), "registry "+r.Host+" responded with 401 Unauthorized: check the credentials") {
		t.Errorf("wrong password: %v", err)
	}
	login(registry.Password)
	img, err := e.Pull(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if img.Ref != ref || !bytes.Contains(img.Passwd, []byte("app:x:1000")) {
		t.Errorf("%+v", img)
	}
	if again, err := e.Image(t.Context(), ref); err != nil || again.ID != img.ID {
		t.Errorf("%+v %v", again, err)
	}
	if same, err := e.Pull(t.Context(), r.Host+"/team/data@"+img.Digest); err != nil || same.ID != img.ID {
		t.Errorf("by digest: %+v, %v", same, err)
	}
	if _, err := e.Pull(t.Context(), r.Host+"/team/none:1"); !failure.IsPermanent(err) || !strings.Contains(err.Error(), "does not have it: check the name and the tag") {
		t.Errorf("absent: %v", err)
	}
	if _, err := e.Pull(t.Context(), r.Host+"/other/data:1"); !failure.IsPermanent(err) || !strings.Contains(err.Error(), "none are known for it") {
		t.Errorf("without credentials: %v", err)
	}
	for architecture, want := range map[string]string{goruntime.GOARCH: "", "s390x": "registry " + r.Host + " has it, but it is for linux/s390x, not for linux/" + goruntime.GOARCH} {
		r.Index(t, "team/data:1", architecture)
		if got, err := e.Pull(t.Context(), r.Host+"/team/data:"+architecture); want == "" && (err != nil || got.ID != img.ID) || want != "" && (!failure.IsPermanent(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("for %s: %+v, %v", architecture, got, err)
		}
	}
	if _, err := e.Pull(t.Context(), "localhost:1/none:1"); err == nil || failure.IsPermanent(err) || errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no registry: %v", err)
	}
	if err := os.WriteFile(auth, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Pull(t.Context(), ref); !failure.IsPermanent(err) || !strings.Contains(err.Error(), auth) {
		t.Errorf("broken file: %v", err)
	}
}

// TestPullWithSecrets: the credentials of pull secrets are tried in order, before those
// of this machine.
func TestPullWithSecrets(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWith(t, nil)
	r := registry.Start(t, registry.Options{Users: true})
	r.Push(t, "team/data:1", dataImage(t, 1))
	ref := r.Host + "/team/data:1"
	secret := func(password string) *v1.Secret {
		auth := base64.StdEncoding.EncodeToString([]byte(registry.User + ":" + password))
		return &v1.Secret{
			Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, r.Host+"/team", auth)},
		}
	}
	for _, tc := range []struct {
		name    string
		secrets []*v1.Secret
		ref     string
		works   bool
	}{
		{"without", nil, ref, false},
		{"wrong", []*v1.Secret{secret("no")}, ref, false},
		{"for another path", []*v1.Secret{secret(registry.Password)}, r.Host + "/other/box:1", false},
		{"the second is right", []*v1.Secret{secret("no"), secret(registry.Password)}, ref, true},
	} {
		credentials, err := image.OfSecrets(tc.secrets, tc.ref)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Pull(t.Context(), tc.ref, credentials...)
		if tc.works != (err == nil) || !tc.works && !failure.IsPermanent(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestPullHopeless: a registry that nobody trusts, or that does not speak TLS, is not asked again.
func TestPullHopeless(t *testing.T) {
	p := newTestDirs(t)
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	certs := t.TempDir()
	e := p.openWith(t, func(o *containerd.Options) { o.CertsDir = certs })
	for name, server := range map[string]*httptest.Server{"untrusted": untrusted, "plain": plain} {
		host := name + ".example"
		if err := os.Mkdir(filepath.Join(certs, host), 0o755); err != nil {
			t.Fatal(err)
		}
		toml := fmt.Sprintf("server = %q\n", "https://"+server.Listener.Addr().String())
		if err := os.WriteFile(filepath.Join(certs, host, "hosts.toml"), []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := e.Pull(t.Context(), host+"/a:1")
		if !failure.IsPermanent(err) || failure.Reason(err, "") != failure.ReasonErrImagePull {
			t.Errorf("%s: %v", name, err)
		}
		want := map[string]string{"untrusted": "CA certificate", "plain": "does not speak TLS: if that is intended"}[name]
		if advised := failure.WithAdvice(err).Error(); !strings.Contains(advised, want) {
			t.Errorf("%s: %s", name, advised)
		}
	}
}

// TestPullMirrors: mirrors are asked in order, with their own credentials from files, and the
// registry itself only if none has the image.
func TestPullMirrors(t *testing.T) {
	p := newTestDirs(t)
	r := registry.Start(t, registry.Options{Users: true})
	r.Push(t, "team/data:1", dataImage(t, 1))
	proxy := registry.NewProxy(t, r)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	defer busy.Close()
	// A mirror that has the API below a path of its own.
	cache := httptest.NewServer(http.StripPrefix("/cache", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/v2" + r.URL.Path
		proxy.ServeHTTP(w, r)
	})))
	defer cache.Close()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "registry.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"registry.example/hosts.toml": fmt.Sprintf("server = \"http://127.0.0.1:1\"\n[host.%q]\n[host.%q]\noverride_path = true\n", busy.URL, cache.URL+"/cache"),
		"auth.json":                   fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, cache.Listener.Addr(), registry.User, registry.Password),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := p.openWith(t, func(o *containerd.Options) {
		o.CertsDir, o.Credentials.AuthFile = dir, filepath.Join(dir, "auth.json")
	})
	if err := e.CheckRegistries([]string{"registry.example/team/data:1"}); err != nil {
		t.Error(err)
	}
	if _, err := e.Pull(t.Context(), "registry.example/team/data:1"); err != nil {
		t.Error(err)
	}
	if _, err := e.Pull(t.Context(), "registry.example/team/none:1"); err == nil {
		t.Error("an image that no mirror has was pulled")
	}
}

// attempt is what a Pull has to lead to.
type attempt struct {
	fails     string // a part of the error; empty for success
	permanent bool
	delay     time.Duration // that the error asks for
}

// pullFault is a case of TestPullFaults.
type pullFault struct {
	name     string
	rules    []registry.Rule
	attempts []attempt
	heads    int // requests for the tag
	ranges   int // requests for a part of a blob
}

func pullFaults() []pullFault {
	const half = mib / 2
	blob := func(times int, f registry.Fault) registry.Rule {
		return registry.Rule{Method: http.MethodGet, Path: layer, Times: times, Fault: f}
	}
	first := func(times int, f registry.Fault) registry.Rule { return registry.Rule{Times: times, Fault: f} }
	good := attempt{}
	return []pullFault{
		{"none", nil, []attempt{good}, 1, 0},
		{"reset", []registry.Rule{blob(1, registry.Reset(half))}, []attempt{good}, 1, 1},
		{"reset twice", []registry.Rule{blob(2, registry.Reset(1000))}, []attempt{good}, 1, 2},
		{"reset, without ranges", []registry.Rule{blob(1, registry.Reset(half)), blob(9, registry.NoRange)}, []attempt{good}, 1, 1},
		{"reset, then not available", []registry.Rule{blob(1, registry.Reset(half)), blob(2, registry.Status(503))}, []attempt{{fails: "broke off"}, good}, 2, 3},
		{"truncated", []registry.Rule{blob(1, registry.Truncate(half))}, []attempt{{fails: "ended its response early"}, good}, 2, 1},
		{"reset, and ranges refused", []registry.Rule{blob(1, registry.Reset(half)), blob(9, registry.RefuseRange(416))}, []attempt{good}, 1, 1},
		{"no answer", []registry.Rule{first(1, registry.Drop)}, []attempt{{fails: "connection reset by peer: check its address"}, good}, 2, 0},
		{"too many requests", []registry.Rule{first(1, registry.Status(429, "Retry-After: 7"))}, []attempt{{fails: "responded with 429 Too Many Requests; retry after 7s", delay: 7 * time.Second}, good}, 2, 0},
		{"maintenance", []registry.Rule{first(1, registry.Status(503, "Retry-After: 7"))}, []attempt{{fails: "responded with 503 Service Unavailable; retry", delay: 7 * time.Second}, good}, 2, 0},
		{"internal error", []registry.Rule{first(2, registry.Status(500))}, []attempt{{fails: "responded with 500 Internal Server Error"}, good}, 3, 0},
		{"bad gateway", []registry.Rule{first(1, registry.Status(502))}, []attempt{{fails: "responded with 502 Bad Gateway"}, good}, 2, 0},
		{"forbidden", []registry.Rule{first(2, registry.Status(403))}, []attempt{{fails: "responded with 403 Forbidden: it did not ask for credentials", permanent: true}, good}, 2, 0},
		{"not found", []registry.Rule{first(1, registry.Status(404))}, []attempt{{fails: "does not have it: check the name", permanent: true}, good}, 2, 0},
		{"wrong bytes", []registry.Rule{blob(9, registry.Corrupt)}, []attempt{{fails: "sent a damaged image", permanent: true}}, 1, 0},
		{"wrong manifest", []registry.Rule{{Method: http.MethodGet, Path: "/manifests/", Times: 9, Fault: registry.Corrupt}}, []attempt{{fails: "sent a damaged image", permanent: true}}, 1, 0},
		{"wrong bytes after a reset", []registry.Rule{blob(1, registry.Reset(half)), blob(1, registry.Corrupt)}, []attempt{{fails: "sent a damaged image"}, good}, 2, 1},
	}
}

// TestPullFaults: a transient fault is worth another try, which goes on where the last one has
// ended; others are not; and what is pulled in the end is right. Daemons are tested with the faults
// of which they keep something.
func TestPullFaults(t *testing.T) {
	r := registry.Start(t, registry.Options{})
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		t.Run("daemon "+string(version), func(t *testing.T) {
			p := dirsOf(t, version)
			e := p.openWith(t, nil)
			for i, f := range pullFaults() {
				if kept := f.ranges > 0 && len(f.attempts) > 1 || strings.HasPrefix(f.name, "wrong"); version == "" || kept {
					t.Run(f.name, func(t *testing.T) { f.test(t, e, r, fmt.Sprintf("team/data:%s%d", version, i)) })
				}
			}
		})
	}
}

func (f pullFault) test(t *testing.T, e *containerd.Engine, r *registry.Registry, name string) {
	proxy := pushData(t, r, name, mib, f.rules...)
	for n, a := range f.attempts {
		checkPull(t, e, proxy.Host+"/"+name, n, a)
	}
	if got := len(proxy.Requests(http.MethodHead, "/manifests/")); got != f.heads {
		t.Errorf("the registry was asked for the tag %d times, want %d", got, f.heads)
	}
	if got := parts(proxy.Requests(http.MethodGet, "/blobs/")); got != f.ranges {
		t.Errorf("%d requests for parts, want %d", got, f.ranges)
	}
	if last := f.attempts[len(f.attempts)-1]; last.fails != "" {
		if _, err := e.Image(t.Context(), proxy.Host+"/"+name); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("there is an image: %v", err)
		}
	}
}

// dirsOf returns the directories of an engine on a daemon, or of the embedded one.
func dirsOf(t *testing.T, version daemon.Version) testDirs {
	t.Helper()
	if version == "" {
		return newTestDirs(t)
	}
	return servedDirs(t, version)
}

func checkPull(t *testing.T, e *containerd.Engine, ref string, n int, want attempt) {
	t.Helper()
	_, err := e.Pull(t.Context(), ref)
	if want.fails == "" {
		if err != nil {
			t.Errorf("pull %d: %v", n, err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want.fails) || failure.IsPermanent(err) != want.permanent || failure.RetryDelay(err) != want.delay {
		t.Errorf("pull %d: permanent %v, delay %s: %v, want %+v", n, failure.IsPermanent(err), failure.RetryDelay(err), err, want)
	}
}

// TestPullStalls: a pull ends when a registry sends nothing more, and the next one goes on; on a
// daemon, too.
func TestPullStalls(t *testing.T) {
	roottest.Require(t)
	r := registry.Start(t, registry.Options{})
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		t.Run("daemon "+string(version), func(t *testing.T) {
			p := dirsOf(t, version)
			proxy := pushData(t, r, "team/data:1", 4*mib, registry.Rule{Method: http.MethodGet, Path: layer, Times: 1, Fault: registry.Stall(2 * mib)})
			ref := proxy.Host + "/team/data:1"
			stalling := p.openWith(t, func(o *containerd.Options) { o.PullTimeout = time.Second })
			_, err := stalling.Pull(t.Context(), ref)
			if err == nil || failure.IsPermanent(err) || !strings.Contains(err.Error(), "registry "+proxy.Host+" has sent nothing for 1s (--pull-timeout): check its address") {
				t.Fatalf("%v", err)
			}
			before := len(proxy.Requests(http.MethodGet, "/blobs/"))
			for range 20 { // a loaded machine may stall, too
				if _, err = stalling.Pull(t.Context(), ref); err == nil || failure.IsPermanent(err) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if parts(proxy.Requests(http.MethodGet, "/blobs/")[before:]) == 0 {
				t.Error("the second pull did not go on where the first had ended")
			}
			if err := stalling.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPartsAreGivenUp: what was fetched of an image that is not pulled in the end does not stay.
func TestPartsAreGivenUp(t *testing.T) {
	p := newTestDirs(t)
	r := registry.Start(t, registry.Options{})
	proxy := pushData(t, r, "team/data:1", 4*mib, registry.Rule{Method: http.MethodGet, Path: layer, Times: 1, Fault: registry.Reset(2 * mib)},
		registry.Rule{Method: http.MethodGet, Path: layer, Times: 2, Fault: registry.Status(503)})
	e := p.openWith(t, nil)
	if _, err := e.Pull(context.WithoutCancel(t.Context()), proxy.Host+"/team/data:1"); err == nil || failure.IsPermanent(err) {
		t.Fatal(err)
	}
	kept := func() int {
		found, err := filepath.Glob(filepath.Join(p.options().Root, "io.containerd.content.v1.content/ingest/*/data"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if kept() == 0 {
		t.Error("nothing is kept for the next pull")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n != 0 {
		t.Errorf("%d parts stay", n)
	}
}
