package images

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/hack/exectest"
	"github.com/runonce/runonce/internal/failure"
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
