package cmd_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// example is a section of docs/registries.md: files, and the command that uses them.
type example struct {
	files   map[string]string
	command string
}

// block matches a fenced block and the paragraph before it.
var (
	block = regexp.MustCompile("(?s)([^\n]*(?:\n[^\n]+)*)\n\n```(\\w+)\n(.*?)```")
	named = regexp.MustCompile("`([^`\\s]*/[^`\\s]+)`[^`]*:$")
)

// registryExamples reads the examples, by the titles of their sections. All have the files of the
// introduction.
func registryExamples(t *testing.T) map[string]example {
	t.Helper()
	text, err := os.ReadFile("../../docs/registries.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]example{}
	common := map[string]string{}
	for i, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(text), -1) {
		title, _, _ := strings.Cut(section, "\n")
		e := example{files: map[string]string{}}
		for _, m := range block.FindAllStringSubmatch(section, -1) {
			paragraph, language, body := m[1], m[2], m[3]
			switch file := named.FindStringSubmatch(paragraph); {
			case file != nil:
				e.files[file[1]] = body
			case language == "sh":
				e.command = strings.TrimSpace(body)
			default:
				t.Errorf("%s: a block without a file:\n%s", title, body)
			}
		}
		if i == 0 {
			common = e.files
		}
		for path, body := range common {
			if e.files[path] == "" {
				e.files[path] = body
			}
		}
		if e.command != "" {
			examples[title] = e
		}
	}
	return examples
}

// appImage is an image whose program ends at once.
func appImage(t *testing.T) ociimage.Image {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := testimages.Program(t.Context(), root, "box")
	if err != nil {
		t.Fatal(err)
	}
	return ociimage.Image{
		Ref: "registry.example/app", Config: v1.ImageConfig{Entrypoint: []string{"/bin/box", "exit", "0"}},
		Files: []ociimage.File{{Path: "/bin/box", Mode: 0o755, Body: program}},
	}
}

// cosign is a program that is called like the one of this name, and accepts the image of the examples.
const cosign = "#!/bin/sh\ncase $* in 'verify --key /etc/runonce/cosign.pub registry.example/team/app:1@sha256:'*) ;; *) echo \"$*\" >&2; exit 1 ;; esac\n"

// TestRegistryExamples runs the examples of docs/registries.md behind a proxy that knows their
// registries.
func TestRegistryExamples(t *testing.T) {
	roottest.Require(t)
	certs := registry.NewCerts(t)
	secured, open := registry.Options{Certs: certs, Users: true}, registry.Options{Certs: certs}
	image := appImage(t)
	cases := map[string]struct {
		o        registry.Options
		selfMade bool // the machine does not trust the CA
		daemons  []daemon.Version
		programs map[string]string // that the machine has
	}{
		"Pull secrets":                {o: secured, daemons: []daemon.Version{daemon.Current, daemon.Debian}},
		"Files of docker and podman":  {o: secured},
		"Credential helpers":          {o: secured},
		"Credential provider plugins": {o: secured, daemons: []daemon.Version{daemon.Current}},
		"Verifying images":            {o: open, daemons: []daemon.Version{daemon.Current}, programs: map[string]string{"/usr/local/bin/cosign": cosign}},
		"Mirrors":                     {o: open},
		"Private CA":                  {o: open, selfMade: true},
		"Client certificates":         {o: registry.Options{Certs: certs, ClientCerts: true}, selfMade: true, daemons: []daemon.Version{daemon.Debian}},
		"Plain HTTP":                  {},
		"Proxies":                     {o: open},
	}
	examples := registryExamples(t)
	for title := range examples {
		if _, ok := cases[title]; !ok {
			t.Errorf("nothing runs the example of %q", title)
		}
	}
	embedded := newMachine(t, "")
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			maps.Copy(examples[title].files, c.programs)
			r := registry.Start(t, c.o)
			r.Push(t, "team/app:1", image)
			registries := map[string]*registry.Registry{"registry.example": r}
			if title == "Mirrors" {
				registries["registry.example"] = nil // only the mirror can be reached
				registries["mirror.example"] = registry.Start(t, registry.Options{Certs: certs, MirrorOf: "http://" + registry.NewProxy(t, r).Host})
			}
			gateway := registry.NewGateway(t, registries)
			environment := []string{"HTTP_PROXY=" + gateway.URL, "HTTPS_PROXY=" + gateway.URL}
			if !c.selfMade {
				environment = append(environment, "SSL_CERT_FILE="+certs.CA())
			}
			embedded.example(t, examples[title], certs, environment)
			for _, version := range c.daemons {
				newMachine(t, "", "--address", daemon.Serve(t, version).Socket).example(t, examples[title], certs, environment)
			}
			if gateway.Requests("registry.example")+gateway.Requests("mirror.example") == 0 {
				t.Error("the proxy was not used")
			}
		})
	}
}

// example runs an example of the documentation, whose files are below a directory of their own.
func (m machine) example(t *testing.T, e example, certs *registry.Certs, environment []string) {
	t.Helper()
	dir := t.TempDir()
	here := func(s string) string {
		for _, top := range []string{"/etc/", "/usr/local/", "/usr/libexec/"} {
			s = strings.ReplaceAll(s, top, dir+top)
		}
		return s
	}
	for path, body := range e.files {
		path = here(path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		exectest.Write(t, path, body)
	}
	hosts := filepath.Join(dir, "etc/containerd/certs.d")
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "client.cert", "client.key"} {
		data, err := os.ReadFile(filepath.Join(certs.Dir, name))
		if err == nil && e.files["/etc/containerd/certs.d/registry.example/hosts.toml"] != "" {
			err = os.WriteFile(filepath.Join(hosts, "registry.example", name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields(here(e.command))
	words = words[slices.Index(words, "runonce")+1:] // the test's own proxy is used
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", slices.Concat(words, []string{"--hosts-dir", hosts}, m.flags)...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(environment, []string{asProgram + "=1", "PATH=" + dir + "/usr/local/bin:" + os.Getenv("PATH")})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", e.command, err, out)
	}
	m.clear(t)
}

// TestRegistryTokens: a registry that wants tokens gets those of the server that it names, which are
// given for a password, for a refresh token, and for what is public to everybody.
func TestRegistryTokens(t *testing.T) {
	roottest.Require(t)
	r := registry.Start(t, registry.Options{Tokens: true})
	for _, name := range []string{"team/app:1", "public/app:1"} {
		r.Push(t, name, appImage(t))
	}
	dir := t.TempDir()
	login := func(entry string) string {
		path := filepath.Join(dir, "auth.json")
		if err := os.WriteFile(path, []byte(fmt.Sprintf(`{"auths": {%q: {%s}}}`, r.Host, entry)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name, image, entry string
		want               string // of a failure
	}{
		{"password", "team/app:1", `"username": "` + registry.User + `", "password": "` + registry.Password + `"`, ""},
		{"refresh token", "team/app:1", `"identitytoken": "` + registry.RefreshToken + `"`, ""},
		{"wrong password", "team/app:1", `"username": "` + registry.User + `", "password": "x"`, "401 Unauthorized: check the credentials"},
		{"nothing", "team/app:1", "", "denies access: it may need credentials"},
		{"public", "public/app:1", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podDir(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {hostNetwork: true, restartPolicy: Never, containers: [{name: c, image: %s/%s}]}\n", r.Host, tc.image))
			args := []string{"run", "-o", "wide", "--hosts-dir", t.TempDir()}
			if tc.entry != "" {
				args = append(args, "--authfile", login(tc.entry))
			}
			code := 0
			if tc.want != "" {
				code = 1
			}
			if out := newMachine(t, "").output(t, code, append(args, pod)...); !strings.Contains(out, tc.want) {
				t.Errorf("it prints\n%s", out)
			}
		})
	}
}

// TestPodsShareAPull: ten pods of one image ask the registry for it once.
func TestPodsShareAPull(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	r := registry.Start(t, registry.Options{})
	manifest := r.Push(t, "team/app:1", appImage(t))
	proxy := registry.NewProxy(t, r)
	pods := t.TempDir()
	for i := range 10 {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {hostNetwork: true, restartPolicy: Never, containers: [{name: c, image: %s/team/app:1}]}\n", i, proxy.Host)
		if err := os.WriteFile(filepath.Join(pods, fmt.Sprintf("p%d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.once(t, "run", "--parallel", "10", "--hosts-dir", t.TempDir(), pods)
	for what, n := range map[string]int{
		"the tag":    len(proxy.Requests(http.MethodHead, "/manifests/1")),
		"the config": len(proxy.Requests(http.MethodGet, manifest.Config.Digest.String())),
		"the layer":  len(proxy.Requests(http.MethodGet, manifest.Layers[0].Digest.String())),
	} {
		if n != 1 {
			t.Errorf("%s was asked for %d times", what, n)
		}
	}
}

// TestRegistryFailures: what cannot be used is refused before anything starts, and a failure has the
// image, the registry, the cause and what to do.
func TestRegistryFailures(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	r := registry.Start(t, registry.Options{Users: true})
	r.Push(t, "team/app:1", appImage(t))
	proxy := registry.NewProxy(t, r, registry.Rule{Times: 1, Fault: registry.Status(503)}, registry.Rule{Times: 1, Fault: registry.Status(429, "Retry-After: 1")})
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pod := file("pods/app.yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {hostNetwork: true, restartPolicy: Never, containers: [{name: c, image: %s/team/app:1}]}\n", proxy.Host))
	bad := file("bad.json", `{"auths": {"registry.example": {"auth": "x"}}}`)
	host, port, _ := strings.Cut(proxy.Host, ":")
	hosts := filepath.Dir(filepath.Dir(file("hosts/"+host+"_"+port+"_/hosts.toml", "[host.\"http://x\"]\noveride_path = true\n")))
	for _, tc := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--authfile", bad}, 2, []string{"--authfile: ", bad, `auths["registry.example"]: auth`, "log in again"}},
		{[]string{"--authfile", filepath.Join(dir, "none")}, 2, []string{"--authfile: ", "no such file"}},
		{[]string{"--hosts-dir", hosts}, 4, []string{"registry " + proxy.Host, "hosts.toml: line 2: unknown field", "overide_path"}},
		{[]string{"--image-credential-provider-config", bad}, 2, []string{"needs --image-credential-provider-bin-dir"}},
		{[]string{"--hosts-dir", hosts, "--pull", "never"}, 1, []string{"ErrImageNeverPull"}},
	} {
		if out := m.output(t, tc.code, slices.Concat([]string{"run", pod}, tc.args)...); !containsAll(out, tc.want) {
			t.Errorf("%q prints\n%s", tc.args, out)
		}
	}
	if n := len(proxy.Requests(http.MethodHead, "")); n > 0 {
		t.Errorf("the registry was asked %d times before anything could start", n)
	}
	empty := t.TempDir()
	out := m.output(t, 1, "run", "--hosts-dir", empty, "-o", "wide", pod)
	if want := []string{"ErrImagePull", `pulling image "` + proxy.Host + `/team/app:1": registry ` + proxy.Host + " denies access: it may need credentials", "--authfile"}; !containsAll(out, want) {
		t.Errorf("without credentials:\n%s", out)
	}
	good := file("good.json", fmt.Sprintf(`{"auths": {%q: {"auth": "bWU6cHc="}}}`, proxy.Host))
	m.output(t, 0, "run", "--hosts-dir", empty, "--rerun", "--authfile", good, pod)
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}
