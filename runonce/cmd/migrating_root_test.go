package cmd_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd"
)

// migration is an example of a page in docs/migrating: manifests, and the command that runs them instead of another program.
type migration struct {
	name, page string
	// begins is how the block of YAML with the manifests begins. A page without one has all of the text instead.
	begins string
	// command is how the line of the page with the command begins, or the file of a unit to which the page has a link.
	command string
	input   string   // the argument of the command that stands for the manifests
	replace []string // what is elsewhere on this machine
	flags   []string
	// check looks whether the pods do what the page says, while they run or after that.
	check func(t *testing.T, m machine)
}

const (
	metadataURL = "http://metadata.google.internal" + attributes + manifests.FormatGCE
	aPod        = "apiVersion: v1\nkind: Pod\n"
)

// migrations returns the examples. Their pods may have the address of this machine and a directory.
func migrations(t *testing.T, address, dir string) []migration {
	t.Helper()
	_, port, _ := strings.Cut(address, ":")
	declared := []string{"--pull", "missing", "--url-header", "Metadata-Flavor: Google"}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := func(want string) func(t *testing.T, m machine) {
		return func(t *testing.T, _ machine) {
			awaitText(t, want, func() string {
				answer, err := fetch(t.Context(), client, "http://"+address)
				return fmt.Sprint(answer, err)
			})
		}
	}
	return []migration{{
		name: "kubelet", page: "kubelet-runonce-and-static-pods.md", begins: aPod, command: "runonce run ", input: "/etc/kubernetes/manifests",
		check: func(t *testing.T, m machine) {
			awaitText(t, read(t, "/etc/passwd"), func() string { return m.once(t, "logs", "-n", "kube-system", "agent") })
		},
	}, {
		name: "podman", page: "podman-kube-play-and-quadlet.md", begins: aPod, command: "runonce run ", input: "web.yaml",
		replace: []string{"hostPort: 8080", "hostPort: " + port}, check: answers("the page of the claim\n"),
	}, {
		name: "docker compose", page: "docker-compose.md", begins: aPod, command: "$ runonce run ", input: "manifests",
		replace: []string{"hostPort: 8080", "hostPort: " + port}, check: answers("the shop\n"),
	}, {
		name: "declaration", page: "gce-container-declaration.md", begins: "# gce-container-declaration\n", command: "runonce run ", input: metadataURL, flags: declared,
		replace: []string{"/var/lib/web", dir, "pdName: site", "pdName: " + disk.Attach(t, "site", "")}, check: answers("lost+found"), // of the disk
	}, {
		name: "konlet", page: "konlet.md", begins: "spec: {containers: [{name: web, image: nginx:1.29}], restartPolicy: Always}\n",
		command: "packaging/gce/runonce-gce.service", input: metadataURL, flags: declared,
		replace: []string{"/usr/local/libexec/runonce/gce", gce}, check: answers("the page of the image\n"),
	}, {
		name: "nomad", page: "nomad-and-systemd.md", begins: "apiVersion: batch/v1\n", command: "runonce run ", input: "report.yaml", flags: []string{"--logs-to", dir},
		check: func(t *testing.T, _ machine) {
			logs, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(logs) != 1 || !strings.HasSuffix(read(t, logs[0]), "report --month 11\n") {
				t.Errorf("logs: %v, %v", logs, err)
			}
		},
	}, {
		name: "unit", page: "nomad-and-systemd.md", begins: aPod, command: "packaging/systemd/runonce-watch@.service", input: "/etc/runonce/pods.d/%i",
		replace: []string{"hostPort: 80}", "hostPort: " + port + "}"}, check: answers("Hello from web.\n"),
	}}
}

// TestMigrating: the examples of docs/migrating reach their goal, and do what they are for.
func TestMigrating(t *testing.T) {
	roottest.Require(t)
	address := freeAddress(t)
	m := newMachine(t, documentImages(t, address))
	claims := t.TempDir()
	environ := []string{"RUNONCE_SETTLE=100ms", "RUNONCE_CNI_CONF_DIR=" + t.TempDir(), "RUNONCE_CLAIMS_DIR=" + claims}
	m.world.Environ = func() []string { return environ }
	claim := filepath.Join(claims, "default", "content")
	if err := os.MkdirAll(claim, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(claim, "index.html"), []byte("the page of the claim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := map[string]bool{}
	for _, c := range migrations(t, address, t.TempDir()) {
		run[migrating+c.page] = true
		t.Run(c.name, func(t *testing.T) { c.run(t, m) })
	}
	pages, err := filepath.Glob(migrating + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !run[page] {
			t.Errorf("nothing runs an example of %s", page)
		}
	}
}

// run runs the command until it ends or, if it watches, until the pods are checked.
func (c migration) run(t *testing.T, m machine) {
	t.Helper()
	args := slices.Concat(c.arguments(t), c.flags, m.flags)
	ctx, cancel := context.WithCancelCause(testContext())
	defer cancel(nil)
	world := m.world
	var out, errs lockedBuffer
	world.Stdout, world.Stderr, world.Stdin = &out, &errs, strings.NewReader("")
	ended := make(chan int, 1)
	go func() { ended <- cmd.Main(ctx, append([]string{"runonce"}, args...), world) }()
	if args[0] == "watch" {
		c.check(t, m)
		awaitText(t, "Running", out.String) // its goal
		cancel(cmd.Interrupt{Signal: syscall.SIGTERM})
	}
	if code := <-ended; code != 0 {
		t.Fatalf("runonce %q: exit code %d\n%s%s", args, code, &out, &errs)
	}
	if args[0] != "watch" {
		c.check(t, m)
	}
	m.once(t, "down", "--all")
}

var executed = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/runonce (.*)$`)

// arguments returns those of the command, with the manifests in a file or behind an address.
func (c migration) arguments(t *testing.T) []string {
	t.Helper()
	page := read(t, migrating+c.page)
	here := strings.NewReplacer(c.replace...)
	text, line := c.begins, ""
	for _, b := range blocks(page) {
		if b.language == "yaml" && strings.HasPrefix(b.text, c.begins) {
			text = b.text
		}
		for l := range strings.Lines(b.text) {
			if line == "" && strings.HasPrefix(l, c.command) {
				_, line, _ = strings.Cut(l, "runonce ")
			}
		}
	}
	if unit := executed.FindStringSubmatch(c.unit(t, page)); unit != nil {
		line = unit[1]
	}
	if !strings.Contains(line, c.input) {
		t.Fatalf("%s: no command %q of %q: %q", c.page, c.command, c.input, line)
	}
	input := filepath.Join(podDir(t, here.Replace(text)), "pods.yaml")
	if c.input == metadataURL {
		input = metadataServer(t, map[string]string{attributes + manifests.FormatGCE: here.Replace(text)}).URL + attributes + manifests.FormatGCE
	}
	return strings.Fields(strings.NewReplacer(append(c.replace, c.input, input)...).Replace(line))
}

// unit returns the text of the unit that the command is in, if it is, which the page has to name.
func (c migration) unit(t *testing.T, page string) string {
	t.Helper()
	if filepath.Ext(c.command) != ".service" {
		return ""
	}
	name, _, _ := strings.Cut(filepath.Base(c.command), ".")
	if !strings.Contains(page, name) {
		t.Errorf("%s does not name %s", c.page, name)
	}
	return read(t, repository+c.command)
}

// awaitText looks until what it sees has a part.
func awaitText(t *testing.T, part string, look func() string) {
	t.Helper()
	got := look()
	for deadline := time.Now().Add(patience); !strings.Contains(got, part) && time.Now().Before(deadline); got = look() {
		time.Sleep(50 * time.Millisecond)
	}
	if !strings.Contains(got, part) {
		t.Errorf("%q, want %q", got, part)
	}
}
