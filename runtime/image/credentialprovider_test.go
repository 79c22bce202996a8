package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/testing/exectest"
)

// script is a plugin that prints a response.
func script(cacheKeyType, more, auth string) string {
	return fmt.Sprintf("#!/bin/sh\ncat <<END\n"+`{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": %q, %s "auth": {%s}}`+"\nEND\n",
		cacheKeyType, more, auth)
}

// entry is a provider in a configuration.
func entry(name, image string) string {
	return fmt.Sprintf("- {name: %s, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [%q], defaultCacheDuration: 10m}\n", name, image)
}

func providers(entries ...string) string {
	return "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n" + strings.Join(entries, "")
}

// TestProviderRequest: a plugin gets the image, its arguments and its variables.
func TestProviderRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exectest.Write(t, filepath.Join(dir, "bin/plugin"), `#!/bin/sh
tr -d '" \n' >`+dir+`/request
echo "$@ $REGION $HOME" >`+dir+`/called
`+strings.TrimPrefix(script("Image", "", `"*.example/team": {"username": "me", "password": "pw"}`), "#!/bin/sh\n"))
	config := providers(`- name: plugin
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example:5000"]
  defaultCacheDuration: 0s
  args: [get, --verbose]
  env: [{name: REGION, value: north}]
`)
	k := NewKeychain(KeychainOptions{ProviderDir: dir + "/bin", ProviderConfig: writeText(t, dir, "config.yaml", config)})
	if err := k.Check(); err != nil {
		t.Fatal(err)
	}
	if got, err := k.provide(t.Context(), "r.example/team/x"); err != nil || len(got) != 0 {
		t.Errorf("for another port: %v, %v", got, err)
	}
	if got, err := k.provide(t.Context(), "r.example:5000/team/x"); err != nil || len(got) != 0 {
		t.Errorf("its answer is for another port: %v, %v", got, err)
	}
	for name, want := range map[string]string{
		"request": "{kind:CredentialProviderRequest,apiVersion:credentialprovider.kubelet.k8s.io/v1,image:r.example:5000/team/x}",
		"called":  "get --verbose north " + os.Getenv("HOME") + "\n",
	} {
		if got, err := os.ReadFile(dir + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// TestProviderCache: a response is used again for as long, and for as many images, as it says.
func TestProviderCache(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, key, more string
		images          []string
		asked           string
	}{
		{"image", "Image", "", []string{"r.example/a", "r.example/a", "r.example/b"}, "r.example/a, r.example/b"},
		{"registry", "Registry", "", []string{"r.example/a", "r.example/b", "s.example/a"}, "r.example/a, s.example/a"},
		{"global", "Global", "", []string{"r.example/a", "s.example/a"}, "r.example/a"},
		{"not at all", "Global", `"cacheDuration": "0s",`, []string{"r.example/a", "r.example/a"}, "r.example/a, r.example/a"},
		{"as long as it says", "Global", `"cacheDuration": "20m",`, []string{"r.example/a", "15m", "r.example/a", "6m", "r.example/a"}, "r.example/a, r.example/a"},
		{"by default", "Global", "", []string{"r.example/a", "9m", "r.example/a", "2m", "r.example/b"}, "r.example/a, r.example/b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			exectest.Write(t, filepath.Join(dir, "bin/plugin"), `#!/bin/sh
tr -d '" \n}' | sed 's/.*image:\(.*\)/\1\n/' >>`+dir+`/asked
`+strings.TrimPrefix(script(tc.key, tc.more, `"*.example": {"username": "me", "password": "pw"}`), "#!/bin/sh\n"))
			all, err := readProviders(nil, writeText(t, dir, "config.yaml", providers(entry("plugin", "*.example"))), dir+"/bin")
			if err != nil {
				t.Fatal(err)
			}
			for _, image := range tc.images {
				if wait, err := time.ParseDuration(image); err == nil {
					// Instead of waiting, what is cached gets older.
					for key, c := range all[0].cache {
						c.expires = c.expires.Add(-wait)
						all[0].cache[key] = c
					}
					continue
				}
				got := ring{}
				if err := all[0].provide(t.Context(), image, got); err != nil || len(got.lookup(image)) != 1 {
					t.Errorf("%s: %v, %v", image, got, err)
				}
			}
			asked, err := os.ReadFile(dir + "/asked")
			if got := strings.Join(strings.Fields(string(asked)), ", "); err != nil || got != tc.asked {
				t.Errorf("asked for %s, %v, want %s", got, err, tc.asked)
			}
		})
	}
}

// TestBadResponses: the error of a plugin names it, and has none of its output, which may be a
// password.
func TestBadResponses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script, want string }{
		{"fails", "#!/bin/sh\necho pw\necho no network >&2\nexit 3\n", "exit status 3: no network"},
		{"no JSON", "#!/bin/sh\necho pw\n", "does not print a CredentialProviderResponse as JSON"},
		{"another version", "#!/bin/sh\necho '{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}'\n", `prints "Pod" of "v1"`},
		{"no cache key", script("", "", ""), `cacheKeyType ""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			exectest.Write(t, filepath.Join(dir, "bin/plugin"), tc.script)
			k := NewKeychain(KeychainOptions{ProviderDir: dir + "/bin", ProviderConfig: writeText(t, dir, "config.yaml", providers(entry("plugin", "r.example")))})
			_, err := k.provide(t.Context(), "r.example/x")
			if err == nil || !strings.HasPrefix(err.Error(), `credential provider "plugin": `) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "pw") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestBadProviderConfigs: an error has the file, the field, and what it must be.
func TestBadProviderConfigs(t *testing.T) {
	t.Parallel()
	const good = "{name: plugin, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [r.example], defaultCacheDuration: 1m}"
	change := func(from, to string) string {
		return providers("- " + strings.Replace(good, from, to, 1) + "\n")
	}
	for _, tc := range []struct{ config, want string }{
		{"", `kind: "": must be CredentialProviderConfig`},
		{"apiVersion: v1\nkind: CredentialProviderConfig\n", `apiVersion: "v1": must be kubelet.config.k8s.io/v1`},
		{providers(), "providers: must have at least one provider"},
		{change("name: plugin", "name: a/b"), `providers[0].name: "a/b": must be the name of a program`},
		{change("/v1", "/v2"), `providers[0].apiVersion: "credentialprovider.kubelet.k8s.io/v2": must be credentialprovider.kubelet.k8s.io/v1`},
		{change("[r.example]", "[]"), "providers[0].matchImages: must have at least one pattern"},
		{change("[r.example]", `["https://r.example"]`), `providers[0].matchImages[0]: "https://r.example": must be a host`},
		{change(", defaultCacheDuration: 1m", ""), "providers[0].defaultCacheDuration: must be a duration"},
		{change("defaultCacheDuration: 1m", "defaultCacheDuration: x"), "invalid duration"},
		{change("}", ", tokenAttributes: {}}"), "providers[0].tokenAttributes: not supported"},
		{change("}", ", matchimage: []}"), `unknown field "providers[0].matchimage"`},
		{change("", "") + "- " + good + "\n", `providers[1].name: "plugin" appears twice`},
		{change("name: plugin", "name: other"), "no program "},
	} {
		dir := t.TempDir()
		exectest.Write(t, filepath.Join(dir, "bin/plugin"), "#!/bin/sh\n")
		path := writeText(t, dir, "config.yaml", tc.config)
		err := NewKeychain(KeychainOptions{ProviderConfig: path, ProviderDir: dir + "/bin"}).Check()
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s\n%v\nwant %s", tc.config, err, tc.want)
		}
	}
	for _, o := range []KeychainOptions{{ProviderConfig: "x"}, {ProviderDir: "x"}, {ProviderConfig: t.TempDir(), ProviderDir: "x"}} {
		if err := NewKeychain(o).Check(); err == nil || !strings.Contains(err.Error(), "--image-credential-provider-config") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestProviderDirectory: the files of a directory count together, by name.
func TestProviderDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		exectest.Write(t, filepath.Join(dir, "bin/"+name), "#!/bin/sh\n")
		writeText(t, dir, "conf/"+name+".yaml", providers(entry(name, "r.example")))
	}
	writeText(t, dir, "conf/notes.txt", "x")
	all, err := readProviders(nil, dir+"/conf", dir+"/bin")
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Errorf("%v, %v", all, err)
	}
}

// TestProvidersTakeTurns: pulls at the same time ask a plugin once.
func TestProvidersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{turn: make(chan struct{}, 1), cache: map[string]cachedRing{}}
		p.MatchImages = []string{"r.example"}
		p.turn <- struct{}{}
		done := make(chan error)
		go func() { done <- p.provide(t.Context(), "r.example/x", ring{}) }()
		synctest.Wait()
		p.cache[""] = cachedRing{expires: time.Now().Add(time.Minute)}
		<-p.turn
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
