package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func secretKey(name, key, value string) SecretKey {
	return SecretKey{Name: name, Key: key, Title: "--secret " + name, Read: func() ([]byte, error) { return []byte(value), nil }}
}

// TestSecrets: keys from outside complete the Secrets of the input, and count for the UID of the pods that use them.
func TestSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: known}\nstringData: {a: manifest, b: manifest}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: i, envFrom: [{secretRef: {name: known}}, {secretRef: {name: new}}]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	uids := map[string]bool{}
	for _, value := range []string{"x", "y", "x"} {
		set, err := ReadPaths(t.Context(), []string{path}, Options{Secrets: []SecretKey{
			secretKey("known", "a", "outside"), secretKey("new", "c", "first"), secretKey("new", "c", value), secretKey("new", "d", "z"),
			secretKey("registry", v1.DockerConfigJsonKey, "{}"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		uids[string(set.Pods[0].UID)] = true
		got := map[string]map[string][]byte{}
		for _, name := range []string{"known", "new"} {
			s, _ := set.Secret("default", name)
			if got[name] = s.Data; !podspec.CameFrom(s, path) {
				t.Errorf("%s: %v", name, s.Annotations)
			}
		}
		want := map[string]map[string][]byte{"known": {"a": []byte("outside"), "b": []byte("manifest")}, "new": {"c": []byte(value), "d": []byte("z")}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if s, _ := set.Secret("default", "registry"); s.Type != v1.SecretTypeDockerConfigJson {
			t.Errorf("type %s", s.Type)
		}
	}
	if len(uids) != 2 {
		t.Errorf("%d UIDs", len(uids))
	}
}

// TestWrongSecrets: no error has a value.
func TestWrongSecrets(t *testing.T) {
	t.Parallel()
	const value = "s3cret"
	for want, k := range map[string]SecretKey{
		"--secret n: no such thing":           {Name: "n", Key: "k", Title: "--secret n", Read: func() ([]byte, error) { return nil, errors.New("no such thing") }},
		"--secret N: metadata.name":           secretKey("N", "k", value),
		"--secret n: data[k k]":               secretKey("n", "k k", value),
		"--secret n: data: Too long":          secretKey("n", "k", strings.Repeat(value, v1.MaxSecretSize/len(value)+1)),
		"--secret r: data[.dockerconfigjson]": secretKey("r", v1.DockerConfigJsonKey, value),
	} {
		_, err := ReadPaths(t.Context(), []string{"/dev/null"}, Options{Secrets: []SecretKey{k}})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), value) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestFingerprintOfSecrets: a changed file is noticed.
func TestFingerprintOfSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "value")
	o := Options{Secrets: []SecretKey{{Path: path}}}
	before := Fingerprint(t.Context(), nil, o)
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if Fingerprint(t.Context(), nil, o) == before {
		t.Error("no change")
	}
}
