package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/engine"
)

// writeText writes a file and returns its path.
func writeText(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLookup(t *testing.T) {
	t.Parallel()
	const paths = `{"auths": {
		"r.example": {"username": "host", "password": "p"},
		"r.example/team": {"username": "team", "password": "p"},
		"r.example/team/x": {"username": "x", "password": "p"},
		"r.example/te": {"username": "part", "password": "p"}}}`
	const twoNames = `{"auths": {
		"https://index.docker.io/v1/": {"username": "old", "password": "p"}, "docker.io": {"username": "new", "password": "p"},
		"https://r.example": {"username": "old", "password": "p"}, "r.example": {"username": "new", "password": "p"},
		"http://r.example/v2/": {"username": "older", "password": "p"}}}`
	for _, tc := range []struct{ name, config, image, want, err string }{
		{name: "none", config: `{}`, image: "r.example/x", want: ":"},
		{name: "plain", config: `{"auths": {"r.example": {"username": "u", "password": "p"}}}`, image: "r.example/x", want: "u:p"},
		{name: "base64", config: `{"auths": {"r.example:5000": {"auth": "dTpwOnc="}}}`, image: "r.example:5000/x", want: "u:p:w"},
		{name: "another port", config: `{"auths": {"r.example:5000": {"auth": "dTpw"}}}`, image: "r.example/x", want: ":"},
		{name: "address", config: `{"auths": {"https://r.example/v2/": {"auth": "dTpw"}}}`, image: "r.example/x", want: "u:p"},
		{name: "old address", config: `{"auths": {"https://r.example/foo": {"auth": "dTpw"}}}`, image: "r.example/x", want: "u:p"},
		{name: "hub", config: `{"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}}}`, image: "docker.io/library/x", want: "u:p"},
		{name: "two names of the hub", config: twoNames, image: "docker.io/library/x", want: "new:p"},
		{name: "two names", config: twoNames, image: "r.example/x", want: "new:p"},
		{name: "token", config: `{"auths": {"r.example": {"identitytoken": "t", "auth": "dTpw"}}}`, image: "r.example/x", want: ":t"},
		{name: "longest path", config: paths, image: "r.example/team/x", want: "x:p"},
		{name: "below a path", config: paths, image: "r.example/team/x/y", want: "x:p"},
		{name: "shorter path", config: paths, image: "r.example/team/xy", want: "team:p"},
		{name: "no path", config: paths, image: "r.example/tea", want: "host:p"},
		{name: "no such helper", config: `{"credHelpers": {"r.example": "none-such"}}`, image: "r.example/x", err: "docker-credential-none-such is not in PATH: install it"},
		{name: "helper of another", config: `{"credHelpers": {"r.example": "none-such"}}`, image: "s.example/x", want: ":"},
		{name: "empty entry", config: `{"auths": {"r.example": {}}}`, image: "r.example/x", want: ":"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f, err := readFile(nil, writeText(t, t.TempDir(), "config.json", tc.config))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.lookup(t.Context(), tc.image)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !failure.IsPermanent(err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || got.User+":"+got.Password != tc.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestBrokenFiles: an error has the file, the place in it, and what to do.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"{\n\"auths\": ", ": line 2: unexpected end of JSON input: correct the file or log in again"},
		{`{"auths": {"r.example": []}}`, ": line 1: auths: must not be a array: correct"},
		{`{"auths": {"r.example": {"auth": "!"}}}`, `: auths["r.example"]: auth is not base64: `},
		{`{"auths": {"r.example": {"auth": "dQ=="}}}`, `: auths["r.example"]: auth must be base64 of user:password: correct it or log in again`},
	} {
		path := writeText(t, t.TempDir(), "auth.json", tc.text)
		err := NewKeychain(KeychainOptions{AuthFile: path}).Check()
		if want := "--authfile: reading registry credentials: " + path + tc.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if err := NewKeychain(KeychainOptions{AuthFile: "/none/such"}).Check(); err == nil || !strings.Contains(err.Error(), "--authfile: reading registry credentials: open /none/such: no such file") {
		t.Errorf("%v", err)
	}
}

func TestHelpers(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"good":  `read host; echo "{\"Username\": \"me\", \"Secret\": \"for $host\"}"`,
		"token": `echo '{"Username": "<token>", "Secret": "t"}'`,
		"empty": `echo "credentials not found in native keychain"; exit 1`,
		"bad":   `echo "the chain is locked"; exit 1`,
	} {
		exectest.Write(t, filepath.Join(dir, "docker-credential-"+name), "#!/bin/sh\n"+script+"\n")
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, tc := range []struct {
		name, image string
		file        file
		want        engine.Credential
		fail        string
	}{
		{name: "for the host", file: file{CredHelpers: map[string]string{"r.example": "good"}}, want: engine.Credential{User: "me", Password: "for r.example"}},
		{name: "for all", file: file{CredsStore: "good"}, want: engine.Credential{User: "me", Password: "for r.example"}},
		{name: "an empty entry", file: file{Auths: map[string]auth{"r.example": {}}, CredsStore: "good"}, want: engine.Credential{User: "me", Password: "for r.example"}},
		{name: "for the hub", image: "docker.io/library/x", file: file{CredsStore: "good"}, want: engine.Credential{User: "me", Password: "for " + hubAddress}},
		{name: "token", file: file{CredsStore: "token"}, want: engine.Credential{Password: "t"}},
		{name: "nothing there", file: file{CredsStore: "empty"}},
		{name: "broken", file: file{CredsStore: "bad"}, fail: "the chain is locked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.image == "" {
				tc.image = "r.example/x"
			}
			got, err := tc.file.lookup(t.Context(), tc.image)
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) || failure.IsPermanent(err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestPlaces: the first file that has a credential for the image wins, and a file that was asked
// for is the only one.
func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"HOME": dir + "/home", "DOCKER_CONFIG": dir + "/docker", "XDG_RUNTIME_DIR": dir + "/run"}
	o := KeychainOptions{Getenv: func(name string) string { return env[name] }}
	login := func(user, registry string) string {
		return fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": "p"}}}`, registry, user)
	}
	want := func(user string) {
		t.Helper()
		got, err := NewKeychain(o).lookup(t.Context(), "r.example/x")
		if err != nil || got.User != user {
			t.Errorf("%+v, %v, want %q", got, err, user)
		}
	}
	want("")
	for _, path := range []string{"home/.docker/config.json", "home/.config/containers/auth.json", "run/containers/auth.json", "docker/config.json"} {
		writeText(t, dir, path, login(path, "r.example"))
		want(path)
	}
	writeText(t, dir, "docker/config.json", login("other", "s.example"))
	want("run/containers/auth.json")
	env["REGISTRY_AUTH_FILE"] = writeText(t, dir, "env.json", login("env", "r.example"))
	want("env")
	o.AuthFile = writeText(t, dir, "flag.json", login("flag", "r.example"))
	want("flag")
	writeText(t, dir, "flag.json", login("flag", "s.example"))
	want("")
}

// TestLogins: the credentials given come first, then those of files, then those of plugins, and
// none only if there are none.
func TestLogins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	auth := writeText(t, dir, "auth.json", `{"auths": {"known.example": {"username": "node", "password": "p"}, "mirror.example/x": {"username": "m", "password": "p"}}}`)
	exectest.Write(t, filepath.Join(dir, "bin/plugin"), script("Image", "", `"plugged.example": {"username": "plug", "password": "p"}`))
	exectest.Write(t, filepath.Join(dir, "bin/broken"), "#!/bin/sh\necho no network >&2; exit 1\n")
	o := KeychainOptions{AuthFile: auth, ProviderDir: dir + "/bin", ProviderConfig: writeText(t, dir, "providers.yaml", providers(
		entry("plugin", "plugged.example"), entry("broken", "broken.example")))}
	given := []engine.Credential{{User: "a", Password: "1"}, {User: "b", Password: "2"}}
	for _, tc := range []struct {
		ref   string
		host  string // that asks, if it is not the registry
		given []engine.Credential
		want  string
	}{
		{"known.example/x:1", "", nil, "node"},
		{"other.example/x:1", "", nil, "-"},
		{"known.example/x:1", "", given, "a b node"},
		{"other.example/x:1", "", given, "a b"},
		{"other.example/x:1", "mirror.example", nil, "m"},
		{"other.example/x:1", "mirror.example", given, "a b"},
		{"plugged.example/x:1", "", nil, "plug"},
		{"plugged.example/x:1", "mirror.example", given, "a b plug"},
		{"broken.example/x:1", "", nil, `- credential provider "broken": running ` + dir + `/bin/broken: exit status 1: no network`},
	} {
		var got []string
		for login, err := range NewKeychain(o).Logins(t.Context(), tc.ref, tc.given) {
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			host, _, _ := strings.Cut(tc.ref, "/")
			if tc.host != "" {
				host = tc.host
			}
			c, err := login(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			if c.User == "" {
				c.User = "-"
			}
			got = append(got, c.User)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s from %s: %q, want %q", tc.ref, tc.host, got, tc.want)
		}
	}
}
