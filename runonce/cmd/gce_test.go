package cmd_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/manifests"
)

const (
	attributes = "/computeMetadata/v1/instance/attributes/"
	migrating  = "../../docs/migrating/"
)

// metadataServer is one of Compute Engine with these answers, by path. It refuses requests without its header.
func metadataServer(t *testing.T, answers map[string]string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			http.Error(w, "no header", http.StatusForbidden)
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestDeclarationOfAnInstance: the declaration is read from the metadata server by every command that reads manifests, and
// its pod stops by the address alone.
func TestDeclarationOfAnInstance(t *testing.T) {
	t.Parallel()
	server := metadataServer(t, map[string]string{attributes + manifests.FormatGCE: "spec: {containers: [{name: web, image: 'localhost/box:1', args: [sleep]}]}\n# without a newline"})
	address := server.URL + attributes + manifests.FormatGCE
	m := newMemory(t)
	read := []string{"--format", manifests.FormatGCE, "--url-header", "Metadata-Flavor: Google", address}
	node := []string{"--node", nodeFile()}
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"validate", "--format", manifests.FormatGCE, address}, 2, "the server responded with 403 Forbidden"},
		{append([]string{"validate"}, read...), 0, "1 pod, no error"},
		{append(append([]string{"plan"}, node...), read...), 0, "web"},
		{append(append([]string{"run", "--settle", "0", "--pull", "missing"}, node...), read...), 0, "Running"},
		{append(append([]string{"run", "--settle", "0", "--pull", "missing"}, node...), strings.Split(strings.Join(read, "\n")+"-of-another", "\n")...), 2, "404 Not Found"},
		{[]string{"ps"}, 0, "web"},
		{[]string{"down", address}, 0, "default/web removed"},
	} {
		got := invokeOn(t, m, step.args...)
		if got.code != step.code || !strings.Contains(got.stdout+got.stderr, step.want) || strings.Contains(got.stderr, "newline") {
			t.Errorf("%v: code %d\n%s%s", step.args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestMigratingExample: the declaration of the page is read as the agent reads it, and the Pod beside it is what it becomes.
func TestMigratingExample(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(read(t, migrating+"gce-container-declaration.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples", len(blocks))
	}
	dir := t.TempDir()
	specs := make([]v1.PodSpec, len(blocks))
	for i, block := range blocks {
		path := filepath.Join(dir, block[1])
		if err := os.WriteFile(path, []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
		o := manifests.Options{}
		if block[1] == manifests.FormatGCE {
			o.Format = manifests.FormatGCE
		}
		set, err := manifests.ReadPaths(t.Context(), []string{path}, o)
		if err != nil || len(set.Pods) != 1 || len(set.Warnings) > 0 {
			t.Fatalf("%s: %v, %v", block[1], err, set.Warnings)
		}
		specs[i] = set.Pods[0].Spec
	}
	if diff := cmp.Diff(specs[0], specs[1]); diff != "" {
		t.Errorf("the declaration (-) and the Pod (+):\n%s", diff)
	}
}

// script runs a program of packaging/gce with the metadata server at an address.
func script(t *testing.T, server *httptest.Server, env []string, name string) (string, error) {
	t.Helper()
	path, err := filepath.Abs(gce + name)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "sh", path)
	c.Env = append(env, "GCE_METADATA_HOST="+strings.TrimPrefix(server.URL, "http://"))
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestTokenPlugin: the plugin gives the token of the instance to the registries of its attribute, and to no others.
func TestTokenPlugin(t *testing.T) {
	t.Parallel()
	needCurl(t)
	const token = "/computeMetadata/v1/instance/service-accounts/default/token"
	const secret = `{"access_token":"ya29.secret","expires_in":3599,"token_type":"Bearer"}`
	for _, tc := range []struct {
		answers map[string]string
		want    []string // registries
		fails   bool
	}{
		{map[string]string{token: secret, attributes + "runonce-registries": "one.example,*.two.example"}, []string{"*.two.example", "one.example"}, false},
		{map[string]string{token: secret}, nil, false},
		{map[string]string{attributes + "runonce-registries": "one.example"}, nil, true},
	} {
		out, err := script(t, metadataServer(t, tc.answers), os.Environ(), "gce-token")
		if tc.fails {
			if err == nil {
				t.Errorf("%v: %s", tc.answers, out)
			}
			continue
		}
		var got struct {
			APIVersion, Kind string
			Auth             map[string]struct{ Username, Password string }
		}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if names := slices.Sorted(maps.Keys(got.Auth)); !slices.Equal(names, tc.want) {
			t.Errorf("for %v, want %v", names, tc.want)
		}
		for name, a := range got.Auth {
			if a.Username != "oauth2accesstoken" || a.Password != "ya29.secret" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	var config struct{ Providers []struct{ Name string } }
	if err := yaml.Unmarshal([]byte(read(t, gce+"providers.yaml")), &config); err != nil || len(config.Providers) != 1 || config.Providers[0].Name != "gce-token" {
		t.Errorf("%+v, %v", config, err)
	}
}

func needCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		roottest.Lacks(t, "no curl")
	}
}

// TestStartupScript: the script installs the release of the attributes, once, and starts the unit; on Container-Optimized OS
// where programs may be, and instead of the agent.
func TestStartupScript(t *testing.T) {
	t.Parallel()
	needCurl(t)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	unit := filepath.Join(tree, "lib/systemd/system/runonce-gce.service")
	if err := os.MkdirAll(filepath.Dir(unit), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit, []byte(read(t, gce+"runonce-gce.service")), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := func(command string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	archive := shell("tar -C " + tree + " -cz .")
	file := filepath.Join(dir, "archive")
	if err := os.WriteFile(file, []byte(archive), 0o600); err != nil {
		t.Fatal(err)
	}
	server := metadataServer(t, map[string]string{
		attributes + "runonce-url": "file://" + file, attributes + "runonce-sha256": strings.Fields(shell("sha256sum " + file))[0],
	})
	for system, want := range map[string]string{
		"debian": "systemctl cat konlet-startup.service\nsystemctl daemon-reload\nsystemctl enable runonce-gce.service\nsystemctl restart --no-block runonce-gce.service\n",
		"cos": "iptables -w -C INPUT -p tcp -j ACCEPT\niptables -w -A INPUT -p tcp -j ACCEPT\niptables -w -C FORWARD -p tcp -j ACCEPT\niptables -w -A FORWARD -p tcp -j ACCEPT\n" +
			"iptables -w -C INPUT -p udp -j ACCEPT\niptables -w -A INPUT -p udp -j ACCEPT\niptables -w -C FORWARD -p udp -j ACCEPT\niptables -w -A FORWARD -p udp -j ACCEPT\n" +
			"iptables -w -C INPUT -p icmp -j ACCEPT\niptables -w -A INPUT -p icmp -j ACCEPT\niptables -w -C FORWARD -p icmp -j ACCEPT\niptables -w -A FORWARD -p icmp -j ACCEPT\n" +
			"systemctl cat konlet-startup.service\nsystemctl mask --runtime --now konlet-startup.service\ndocker ps -aq --filter name=^/klt-\ndocker rm -f 12ab\n" +
			"systemctl daemon-reload\nsystemctl enable runonce-gce.service\nsystemctl restart --no-block runonce-gce.service\n",
	} {
		root, bin := filepath.Join(dir, system), t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("NAME=x\nID="+system+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		calls := filepath.Join(bin, "calls")
		note := "#!/bin/sh\necho \"${0##*/} $*\" >>" + calls + "\n"
		exectest.Write(t, filepath.Join(bin, "systemctl"), note+"[ $1 != cat ] || [ "+system+" = cos ]\n")
		exectest.Write(t, filepath.Join(bin, "iptables"), note+"[ $2 = -A ]\n")
		exectest.Write(t, filepath.Join(bin, "docker"), note+"[ $1 = rm ] || echo 12ab\n")
		env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "DESTDIR=" + root}
		for range 2 {
			_ = os.Remove(calls)
			if out, err := script(t, server, env, "startup-script.sh"); err != nil {
				t.Fatalf("%s: %v: %s", system, err, out)
			}
			if diff := cmp.Diff(want, read(t, calls)); diff != "" {
				t.Errorf("%s:\n%s", system, diff)
			}
		}
		prefix := map[string]string{"debian": "/usr/local", "cos": "/var/lib/google/runonce"}[system]
		if text := read(t, filepath.Join(root, "etc/systemd/system/runonce-gce.service")); !strings.Contains(text, "ExecStart="+prefix+"/bin/runonce ") {
			t.Errorf("%s: the unit:\n%s", system, text)
		}
		_, err := os.Stat(filepath.Join(root, "etc/runonce/config.yaml"))
		if (err == nil) != (system == "cos") {
			t.Errorf("%s: the configuration: %v", system, err)
		}
	}

	// Another archive than that of the checksum is not unpacked.
	server = metadataServer(t, map[string]string{attributes + "runonce-url": "file://" + file, attributes + "runonce-sha256": strings.Repeat("0", 64)})
	root := filepath.Join(dir, "debian")
	out, err := script(t, server, append(os.Environ(), "DESTDIR="+root), "startup-script.sh")
	if err == nil || !strings.Contains(out, "sha256sum") {
		t.Errorf("a wrong checksum: %v: %s", err, out)
	}
}
