package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
