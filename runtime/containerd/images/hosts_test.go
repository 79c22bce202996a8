package images

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/image"
)

// TestCheckHosts: an error has the file, the line or the field, and what it must be.
func TestCheckHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"good", "server = \"https://r.example\"\n[host.\"https://m.example\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\ndial_timeout = \"2s\"\n[host.\"https://m.example\".header]\nx = [\"1\"]\n", ""},
		{"empty", "", ""},
		{"syntax", "server = \"https://r.example\"\n[host", "hosts.toml: line 2: "},
		{"type", "\nserver = 1\n", "hosts.toml: line 2: "},
		{"unknown field", "[host.\"https://m.example\"]\noveride_path = true\n", "hosts.toml: line 2: unknown field host.https://m.example.overide_path"},
		{"capability", "[host.\"https://m.example\"]\ncapabilities = [\"pul\"]\n", `hosts.toml: host."https://m.example".capabilities: "pul": must be pull, resolve`},
		{"duration", "dial_timeout = \"2\"\n", `hosts.toml: dial_timeout: "2": must be a duration`},
		{"type of ca", "ca = 1\n", "hosts.toml: ca: must be the path of a file"},
		{"type of client", "client = [[\"a\", 1]]\n", "hosts.toml: client: must be the path of a file"},
		{"absent ca", "ca = \"none.crt\"\n", "none.crt"},
		{"absent client", "client = [[\"none.cert\", \"none.key\"]]\n", "none.cert"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, host := range []string{"r.example_5000_", "bad.example"} {
				text := tc.text
				if host == "bad.example" {
					text = "["
				}
				if err := os.Mkdir(filepath.Join(dir, host), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			none := image.NewKeychain(image.KeychainOptions{Getenv: func(string) string { return "" }})
			err := Registries{CertsDir: dir, Keychain: none}.Check([]string{"r.example:5000/x:1", "other.example/x:1"})
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "reading the configuration of registry r.example:5000: "+dir) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestIgnored: a directory whose name lacks the port is not silently ignored.
func TestIgnored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, ref string
		dirs      []string
		want      string
	}{
		{"none", "r.example:5000/x:1", nil, ""},
		{"with the port", "r.example:5000/x:1", []string{"r.example", "r.example_5000_"}, ""},
		{"with a colon", "r.example:5000/x:1", []string{"r.example", "r.example:5000"}, ""},
		{"no port", "r.example/x:1", []string{"r.example"}, ""},
		{"without the port", "r.example:5000/x:1", []string{"r.example", "_default"}, "DIR/r.example is not for port 5000: registry r.example:5000 needs DIR/r.example_5000_"},
	} {
		dir := t.TempDir()
		for _, name := range tc.dirs {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		got := strings.Join(Registries{CertsDir: dir}.Ignored([]string{tc.ref, tc.ref}), "\n")
		if want := strings.ReplaceAll(tc.want, "DIR", dir); got != want {
			t.Errorf("%s: %q, want %q", tc.name, got, want)
		}
	}
}

// TestUntrustedRegistry: the advice names the place for the certificate of this registry.
func TestUntrustedRegistry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"own.example", "bare.example"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "own.example", "hosts.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	untrusted := &url.Error{Op: "Get", URL: "https://r.example/v2/", Err: x509.UnknownAuthorityError{}}
	for ref, want := range map[string]string{
		"r.example:5000/x:1": ": add the server's CA certificate to those of this machine, or as ca.crt to DIR/r.example_5000_",
		"bare.example/x:1":   ": add the server's CA certificate to those of this machine, or as ca.crt to DIR/bare.example",
		"own.example/x:1":    ": add the server's CA certificate to those of this machine, or as ca to DIR/own.example/hosts.toml",
	} {
		err := pullError(t.Context(), Access{registries: Registries{CertsDir: dir}, ref: ref}, untrusted, &traffic{})
		if got := failure.WithAdvice(err).Error(); !strings.HasSuffix(got, strings.ReplaceAll(want, "DIR", dir)) {
			t.Errorf("%s: %s", ref, got)
		}
	}
}
