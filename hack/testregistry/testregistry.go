// Package testregistry runs a registry of images for tests: Debian's docker-registry, on loopback.
package testregistry

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
)

const (
	// User is the only user of a registry.
	User = "me"
	// Password is the user's.
	Password = "pw"
	// users is the file of passwords (htpasswd, bcrypt).
	users = "me:$2a$05$ckZ41KHXKMqcTR.mDka6petLm11u4OtzAniBdSeyi55ciIK6ZOJhu\n"
	// startTimeout bounds the start, which only takes long on a busy machine.
	startTimeout = time.Minute
)

const config = `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %[1]s/data}}
http: {addr: %[2]s}
auth: {htpasswd: {realm: test, path: %[1]s/users}}
`

// Serve runs a registry without TLS until the end of the test, and returns its host and port.
func Serve(t testing.TB) string {
	t.Helper()
	dir, host := t.TempDir(), freeAddress(t)
	for name, text := range map[string]string{"users": users, "config.yml": fmt.Sprintf(config, dir, host)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "docker-registry", "serve", filepath.Join(dir, "config.yml"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
		if err == nil {
			_ = conn.Close()
			return host
		}
		if time.Now().After(deadline) {
			t.Fatal("the registry does not serve:", err)
		}
	}
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	// Below the range from which the kernel gives ports to others meanwhile.
	address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Push uploads the image of an OCI archive to a registry of this package.
func Push(t testing.TB, oci io.Reader, ref string) {
	t.Helper()
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	index, err := archive.ImportIndex(t.Context(), store, oci)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := images.Children(t.Context(), store, index)
	if err != nil || len(manifests) != 1 {
		t.Fatalf("%d images in the archive: %v", len(manifests), err)
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchAllHosts),
		docker.WithAuthorizer(docker.NewDockerAuthorizer(docker.WithAuthCreds(func(string) (string, string, error) { return User, Password, nil }))),
	)})
	pusher, err := resolver.Pusher(t.Context(), ref)
	if err == nil {
		err = remotes.PushContent(t.Context(), pusher, manifests[0], store, nil, platforms.All, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}
