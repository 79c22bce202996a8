package containerd_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/hack/testregistry"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/image"
)

// serveBox runs a registry with the box image, and returns its host and port.
func serveBox(t *testing.T) string {
	t.Helper()
	archive, err := boxArchive()
	if err != nil {
		t.Fatal(err)
	}
	host := testregistry.Serve(t)
	testregistry.Push(t, bytes.NewReader(archive), host+"/team/box:1")
	return host
}

func TestPull(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	host := serveBox(t)
	ref := host + "/team/box:1"

	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	tls := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host}))
	defer tls.Close()
	login := func(user, password string) {
		t.Helper()
		auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}, %[3]q: {"auth": %[2]q}}}`, host, auth, tls.Listener.Addr())
		if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	permanent := func(err error) bool {
		var p interface{ Permanent() bool }
		return errors.As(err, &p) && p.Permanent()
	}

	login("me", "wrong")
	if _, err := e.Pull(t.Context(), ref); !permanent(err) {
		t.Errorf("wrong password: %v", err)
	}
	login("me", "pw")
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
	if same, err := e.Pull(t.Context(), tls.Listener.Addr().String()+"/team/box:1"); err != nil || same.ID != img.ID {
		t.Errorf("by TLS: %+v, %v", same, err)
	}
	if _, err := e.Pull(t.Context(), host+"/team/none:1"); !permanent(err) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("absent: %v", err)
	}
	if _, err := e.Pull(t.Context(), "localhost:1/none:1"); err == nil || permanent(err) || errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no registry: %v", err)
	}
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Pull(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("broken configuration: %v", err)
	}
}

// TestPullWithSecrets: the credentials of pull secrets are tried in order, before those
// of this machine.
func TestPullWithSecrets(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	host := serveBox(t)
	ref := host + "/team/box:1"
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	secret := func(password string) *v1.Secret {
		auth := base64.StdEncoding.EncodeToString([]byte("me:" + password))
		return &v1.Secret{
			Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host+"/team", auth)},
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
		{"for another path", []*v1.Secret{secret("pw")}, host + "/other/box:1", false},
		{"the second is right", []*v1.Secret{secret("no"), secret("pw")}, ref, true},
	} {
		credentials, err := image.Credentials(tc.secrets, tc.ref)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Pull(t.Context(), tc.ref, credentials...)
		var final interface{ Permanent() bool }
		if tc.works != (err == nil) || !tc.works && (!errors.As(err, &final) || !final.Permanent()) {
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
	o := p.options()
	o.CertsDir = t.TempDir()
	e, err := containerd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for name, server := range map[string]*httptest.Server{"untrusted": untrusted, "plain": plain} {
		host := name + ".example"
		if err := os.Mkdir(filepath.Join(o.CertsDir, host), 0o755); err != nil {
			t.Fatal(err)
		}
		toml := fmt.Sprintf("server = %q\n", "https://"+server.Listener.Addr().String())
		if err := os.WriteFile(filepath.Join(o.CertsDir, host, "hosts.toml"), []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := e.Pull(t.Context(), host+"/a:1")
		if !failure.IsPermanent(err) || failure.Reason(err, "") != failure.ReasonErrImagePull {
			t.Errorf("%s: %v", name, err)
		}
		if advised := failure.WithAdvice(err).Error(); name == "untrusted" && !strings.Contains(advised, "CA certificate") {
			t.Errorf("%s: %s", name, advised)
		}
	}
}
