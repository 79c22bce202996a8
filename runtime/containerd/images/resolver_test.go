package images

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// TestEach: another way to log in is tried only if that may help, and a plugin that has failed is
// worth another try.
func TestEach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	for path, text := range map[string]string{
		filepath.Join(dir, "plugin"): "#!/bin/sh\necho no network >&2; exit 1\n",
		config: `{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [
			{name: plugin, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [plugged.example], defaultCacheDuration: 1m}]}`,
	} {
		exectest.Write(t, path, text)
	}
	r := Registries{Keychain: image.NewKeychain(image.KeychainOptions{ProviderConfig: config, ProviderDir: dir, Getenv: func(string) string { return "" }})}
	denied, busy := failure.Permanentf("denied"), errors.New("busy")
	given := []engine.Credential{{User: "a", Password: "1"}, {User: "b", Password: "2"}}
	for _, tc := range []struct {
		name, ref string
		results   []error
		want      string
		permanent bool
	}{
		{"the first works", "r.example/x", []error{nil}, "", false},
		{"the second works", "r.example/x", []error{denied, nil}, "", false},
		{"none works", "r.example/x", []error{denied, denied}, "denied", true},
		{"the registry is busy", "r.example/x", []error{busy}, "busy", false},
		{"the plugin fails", "plugged.example/x", []error{denied, denied}, `denied; credential provider "plugin": running ` + dir + "/plugin: exit status 1: no network", false},
		{"the plugin is not needed", "plugged.example/x", []error{nil}, "", false},
	} {
		calls := 0
		err := r.Each(t.Context(), tc.ref, given, func(Access) error {
			calls++
			return tc.results[calls-1]
		})
		if calls != len(tc.results) || (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want || failure.IsPermanent(err) != tc.permanent {
			t.Errorf("%s: %d calls, permanent %v, %v", tc.name, calls, failure.IsPermanent(err), err)
		}
	}
}

// TestEndlessAnswers: a registry that does not end its answers is given up soon, whatever it was asked for.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	const ref = "/x:1"
	never := func(w http.ResponseWriter) {
		chunk := bytes.Repeat([]byte(" "), 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for _, tc := range []struct {
		name  string
		serve func(w http.ResponseWriter, r *http.Request)
		path  string
	}{
		{"manifest", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			if r.Method != http.MethodHead {
				never(w)
			}
		}, "/v2/x/manifests/1"},
		{"token", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/token") {
				never(w)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "/token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(tc.serve))
			t.Cleanup(s.Close)
			host := strings.TrimPrefix(s.URL, "http://")
			r := Registries{CertsDir: t.TempDir(), Keychain: image.NewKeychain(image.KeychainOptions{Getenv: func(string) string { return "" }})}
			_, err := r.Digest(t.Context(), host+ref, nil)
			if want := "registry " + host + " has sent more than 8 MiB for " + tc.path; !failure.IsPermanent(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// TestBounded: manifests and configurations that say that they are huge are not fetched; layers may be.
func TestBounded(t *testing.T) {
	t.Parallel()
	for mediaType, refused := range map[string]bool{
		ocispec.MediaTypeImageManifest: true, ocispec.MediaTypeImageIndex: true, ocispec.MediaTypeImageConfig: true,
		ocispec.MediaTypeImageLayerGzip: false,
	} {
		for size, wrong := range map[int64]bool{maxAnswer: false, maxAnswer + 1: refused} {
			_, err := bounded(images.HandlerFunc(func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) {
				return []ocispec.Descriptor{{MediaType: mediaType, Size: size}}, nil
			})).Handle(t.Context(), ocispec.Descriptor{})
			if failure.IsPermanent(err) != wrong || !wrong && err != nil {
				t.Errorf("%s of %d bytes: %v", mediaType, size, err)
			}
		}
	}
	if _, err := readConfig(t.Context(), nil, ocispec.Descriptor{Size: maxAnswer + 1}); !failure.IsPermanent(err) {
		t.Errorf("configuration: %v", err)
	}
}
