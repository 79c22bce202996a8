// Package registry runs registries for tests: docker-registry, with TLS, users, or as a mirror, and
// a proxy before it that makes faults.
package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// The user that a registry with Users knows.
const (
	User     = "me"
	Password = "pw"
	// users is htpasswd of it, bcrypt.
	users = "me:$2a$05$ckZ41KHXKMqcTR.mDka6petLm11u4OtzAniBdSeyi55ciIK6ZOJhu\n"
)

const patience = time.Minute

// Options say what a registry is like.
type Options struct {
	Certs       *Certs // for TLS
	ClientCerts bool   // clients need a certificate, too
	Users       bool   // only User may pull and push
	Tokens      bool   // a server gives tokens to User, and to all for repositories below public/
	MirrorOf    string // pulls from the registry at this address what it does not have
}

// Registry is one that runs until the end of the test.
type Registry struct {
	Host   string // with port
	Scheme string
	client *http.Client
	tokens *tokens
	stop   func()
}

// Stop ends the registry before the end of the test.
func (r *Registry) Stop() { r.stop() }

// URL returns the registry's address.
func (r *Registry) URL() string { return r.Scheme + "://" + r.Host }

// Start starts a registry.
func Start(t testing.TB, o Options) *Registry {
	t.Helper()
	roottest.Require(t) // docker-registry is among what those tests need
	dir := t.TempDir()
	host, err := FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &Registry{Host: host, Scheme: "http", client: &http.Client{Timeout: patience}}
	config := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s}}\n", filepath.Join(dir, "data"))
	config += fmt.Sprintf("http:\n  addr: %s\n", r.Host)
	if o.Certs != nil {
		r.Scheme = "https"
		r.client.Transport = o.Certs.transport(t)
		config += fmt.Sprintf("  tls: {certificate: %s, key: %s", o.Certs.path("server.crt"), o.Certs.path("server.key"))
		if o.ClientCerts {
			config += fmt.Sprintf(", clientcas: [%s]", o.Certs.CA())
		}
		config += "}\n"
	}
	if o.Users {
		config += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s}}\n", writeFile(t, dir, "users", users))
	}
	if o.Tokens {
		r.tokens = newTokens(t)
		config += fmt.Sprintf("auth: {token: {realm: %q, service: %s, issuer: %s, rootcertbundle: %s}}\n", r.tokens.url, tokenService, tokenIssuer, r.tokens.certs.CA())
	}
	if o.MirrorOf != "" {
		config += fmt.Sprintf("proxy: {remoteurl: %q}\n", o.MirrorOf)
	}
	log := filepath.Join(dir, "log")
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); t.Failed() && len(text) > 0 {
			t.Logf("registry %s: %s, %v", r.Host, text, err)
		}
	})
	if r.stop, err = Serve(t.Context(), writeFile(t, dir, "config.yml", config), r.Host, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

// Serve runs docker-registry with a file of its configuration, which has it listen at the address,
// until stop is called, and returns when it listens. log is the file of its messages.
func Serve(ctx context.Context, config, address, log string) (stop func(), err error) {
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		return nil, err
	}
	p, err := daemon.Launch(ctx, log, program, "serve", config)
	if err != nil {
		return nil, err
	}
	stop = sync.OnceFunc(func() { _ = p.Stop(syscall.SIGKILL) })
	if err = p.Await(ctx, daemon.Listening("tcp", address)); err != nil {
		stop()
	}
	return stop, err
}

// FreeAddress returns an address below the range from which the kernel gives ports to others
// meanwhile.
func FreeAddress(ctx context.Context) (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if l, err := new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no port is free")
}

// Push uploads an image under a name with a tag, and returns its manifest.
func (r *Registry) Push(t testing.TB, name string, img ociimage.Image) v1.Manifest {
	t.Helper()
	var archive bytes.Buffer
	if err := ociimage.Build(&archive, img); err != nil {
		t.Fatal(err)
	}
	repository, tag, _ := strings.Cut(name, ":")
	manifest, err := r.push(t.Context(), repository, tag, &archive)
	if err != nil {
		t.Fatalf("pushing %s: %v", name, err)
	}
	return manifest
}

// Index uploads an index with the image of a name, for machines of one architecture only, which is
// the tag of the index.
func (r *Registry) Index(t testing.TB, name, architecture string) {
	t.Helper()
	repository, tag, _ := strings.Cut(name, ":")
	manifests := r.URL() + "/v2/" + repository + "/manifests/"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, manifests+tag, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.authorize(req)
	req.Header.Set("Accept", v1.MediaTypeImageManifest)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	index, err := json.Marshal(v1.Index{
		Versioned: imagespec.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: v1.MediaTypeImageManifest, Digest: digest.Digest(resp.Header.Get("Docker-Content-Digest")), Size: resp.ContentLength,
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}},
	})
	if err == nil {
		_, err = r.send(t.Context(), http.MethodPut, manifests+architecture, v1.MediaTypeImageIndex, index)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (r *Registry) push(ctx context.Context, repository, tag string, archive io.Reader) (manifest v1.Manifest, err error) {
	index, blobs, err := readArchive(archive)
	if err != nil {
		return manifest, err
	}
	own := index.Manifests[0]
	for digest, data := range blobs {
		if digest == own.Digest {
			continue
		}
		if err := r.upload(ctx, repository, digest.String(), data); err != nil {
			return manifest, err
		}
	}
	if err := json.Unmarshal(blobs[own.Digest], &manifest); err != nil {
		return manifest, err
	}
	_, err = r.send(ctx, http.MethodPut, r.URL()+"/v2/"+repository+"/manifests/"+tag, own.MediaType, blobs[own.Digest])
	return manifest, err
}

// readArchive reads an OCI layout.
func readArchive(archive io.Reader) (index v1.Index, blobs map[digest.Digest][]byte, err error) {
	blobs = map[digest.Digest][]byte{}
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return index, blobs, nil
		}
		if err != nil {
			return index, nil, err
		}
		data, err := io.ReadAll(files)
		if err == nil && h.Name == "index.json" {
			err = json.Unmarshal(data, &index)
		}
		if err != nil {
			return index, nil, err
		}
		if path.Dir(h.Name) == "blobs/sha256" {
			blobs[digest.NewDigestFromEncoded(digest.SHA256, path.Base(h.Name))] = data
		}
	}
}

func (r *Registry) upload(ctx context.Context, repository, digest string, data []byte) error {
	location, err := r.send(ctx, http.MethodPost, r.URL()+"/v2/"+repository+"/blobs/uploads/", "", nil)
	if err != nil {
		return err
	}
	_, err = r.send(ctx, http.MethodPut, location+"&digest="+digest, "application/octet-stream", data)
	return err
}

func (r *Registry) send(ctx context.Context, method, url, mediaType string, body []byte) (location string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.authorize(req)
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		text, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return resp.Header.Get("Location"), nil
}

// authorize lets the request do all that it needs.
func (r *Registry) authorize(req *http.Request) {
	req.SetBasicAuth(User, Password)
	if r.tokens != nil {
		repository := regexp.MustCompile("^/v2/(.*)/(blobs|manifests)/").FindStringSubmatch(req.URL.Path)[1]
		req.Header.Set("Authorization", "Bearer "+r.tokens.sign([]access{{"repository", repository, []string{"pull", "push"}}}))
	}
}

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// transport trusts the CA and has the client's certificate.
func (c *Certs) transport(t testing.TB) *http.Transport {
	t.Helper()
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(c.CA())
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no CA certificate", err)
	}
	pair, err := tls.LoadX509KeyPair(c.path("client.cert"), c.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
}
