package cmd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/doctext"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// TestConsoleBlocks: the commands of every block that is marked "console" succeed, and print what the block shows.
func TestConsoleBlocks(t *testing.T) {
	roottest.Require(t)
	images := documentImages(t, "")
	all := consoleBlocks(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t, name, images)
			s.write(t, filesOfDocument(all[name].document))
			for _, c := range shownCommands(t, s.here(all[name].text)) {
				s.run(t, c)
			}
		})
	}
}

// documentImages writes the images that documents name, with programs that do as little as the document tells of them. The
// address is where those on the host's network listen.
func documentImages(t *testing.T, address string) string {
	t.Helper()
	images, err := testimages.Parse([]byte(strings.ReplaceAll(read(t, consoleDir+"images.yaml"), "ADDRESS", address)))
	if err != nil {
		t.Fatal(err)
	}
	return writeImages(t, images...)
}

// freeAddress is one of this machine on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := backend.FreePort(t.Context(), v1.ProtocolTCP, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// sandbox is a shell in a directory with the files of a block, where runonce has a machine of its own.
type sandbox struct {
	here  func(text string) string // replaces what is elsewhere on this machine
	dir   string
	shell io.Writer
	lines <-chan string
	code  string // of the last command
}

// filesOfDocument returns the blocks of a document that are files with relative paths.
func filesOfDocument(text string) map[string]string {
	files := map[string]string{}
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if file := named.FindStringSubmatch(m[1]); file != nil && filepath.IsLocal(file[1]) {
			files[file[1]] = m[3]
		}
	}
	return files
}

// write writes files for the block.
func (s *sandbox) write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		exectest.Write(t, filepath.Join(s.dir, name), s.here(text))
	}
}

var (
	portLine   = regexp.MustCompile(`(?m)^port (\d+)$`)
	beforeLine = regexp.MustCompile(`(?m)^before (.*)$`)
)

// newSandbox starts the shell for a block.
func newSandbox(t *testing.T, name, images string) *sandbox {
	t.Helper()
	m := newMachine(t, images)
	fixture := parsed(t, consoleDir+name+".txtar")
	replace := []string{"/run/runonce", filepath.Join(m.dir, "state"), "/var/log/pods", filepath.Join(m.dir, "log")}
	for _, p := range portLine.FindAllSubmatch(fixture.Comment, -1) {
		_, port, _ := strings.Cut(freeAddress(t), ":")
		replace = append(replace, string(p[1]), port)
	}
	s := &sandbox{here: strings.NewReplacer(replace...).Replace, dir: t.TempDir(), code: "0"}
	for _, f := range fixture.Files {
		s.write(t, map[string]string{f.Name: string(f.Data)})
	}
	s.write(t, map[string]string{".curlrc": "silent\nshow-error\nnoproxy = *\n"}) // silent, as on a terminal
	environ := append(os.Environ(), "HOME="+s.dir, "PATH="+sandboxPrograms(t, string(fixture.Comment))+":"+os.Getenv("PATH"),
		"RUNONCE_ROOT="+filepath.Join(m.dir, "root"), "RUNONCE_STATE="+filepath.Join(m.dir, "state"), "RUNONCE_LOG_DIR="+filepath.Join(m.dir, "log"),
		"RUNONCE_CNI_CONF_DIR="+t.TempDir(), "RUNONCE_SETTLE=100ms", "RUNONCE_PULL=missing", "RUNONCE_QUIET=true") // a terminal does not keep progress either
	s.start(t, environ)
	for _, before := range beforeLine.FindAllSubmatch(fixture.Comment, -1) {
		s.run(t, shownCommand{command: string(before[1]) + " >/dev/null"})
	}
	return s
}

// sandboxPrograms returns a directory with the programs that a block calls and this machine need not have installed.
func sandboxPrograms(t *testing.T, comment string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	exectest.Write(t, filepath.Join(bin, "runonce"), "#!/bin/sh\n"+asProgram+"=1 exec "+self+` "$@"`+"\n")
	for line := range strings.Lines(comment) {
		switch program, _ := strings.CutPrefix(strings.TrimSpace(line), "needs "); program {
		case "runonce-compose":
			if _, err := exec.LookPath("go"); err != nil {
				t.Skip("the converter is built here")
			}
			bin += ":" + converterDir(t)
		case "kubectl":
			path, err := filepath.Abs(repository + ".cache/cluster/kubectl")
			if err == nil {
				_, err = os.Stat(path)
			}
			if err != nil {
				t.Skip("needs what make test-cluster builds")
			}
			if err := os.Symlink(path, filepath.Join(bin, program)); err != nil {
				t.Fatal(err)
			}
		case "curl", "jq":
			if _, err := exec.LookPath(program); err != nil {
				roottest.Lacks(t, "no %s", program)
			}
		}
	}
	return bin
}

// start starts the shell, which ends with all that it has started when the test ends.
func (s *sandbox) start(t *testing.T, environ []string) {
	t.Helper()
	shell := exec.CommandContext(context.WithoutCancel(t.Context()), "bash")
	shell.Dir, shell.Env, shell.SysProcAttr = s.dir, environ, &syscall.SysProcAttr{Setpgid: true}
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.Stdout, shell.Stderr = write, write
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		late := time.AfterFunc(patience, func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
		defer late.Stop()
		_, _ = io.WriteString(in, "kill $(jobs -p) 2>/dev/null; wait; exit 0\n")
		for line := range lines {
			t.Logf("at the end: %s", line)
		}
		if err := shell.Wait(); err != nil {
			t.Errorf("the shell: %v", err)
		}
	})
	s.shell, s.lines = in, lines
}

// endOf begins the line that follows what a command has printed.
const endOf = "exit code "

// run runs a command and compares what it prints with what the document shows. One that goes on in the background is given the time to
// print that much.
func (s *sandbox) run(t *testing.T, c shownCommand) {
	t.Helper()
	if _, err := fmt.Fprintf(s.shell, "(exit %s); { %s\n} </dev/null; echo %s$?\n", s.code, c.command, endOf); err != nil {
		t.Fatal(err)
	}
	background := strings.HasSuffix(c.command, "&")
	deadline := time.After(patience)
	var got []string
	ended := false
	for !ended || background && len(got) < len(c.output) {
		select {
		case line, ok := <-s.lines:
			if !ok {
				t.Fatalf("%s: the shell has ended\n%s", c.command, strings.Join(got, "\n"))
			}
			if rest, ok := strings.CutPrefix(line, endOf); ok {
				s.code, ended = rest, true
			} else {
				got = append(got, line)
			}
		case <-deadline:
			t.Fatalf("%s: it does not end, and has printed\n%s", c.command, strings.Join(got, "\n"))
		}
	}
	if (s.code != "0") != c.fails {
		t.Errorf("%s: exit code %s\n%s", c.command, s.code, strings.Join(got, "\n"))
	}
	if diff := cmp.Diff(normalized(c.output), normalized(got)); diff != "" {
		t.Errorf("%s: the document (-) and what it prints (+):\n%s", c.command, diff)
	}
}

func normalized(lines []string) string {
	var all strings.Builder
	for _, line := range lines {
		all.WriteString(doctext.Normalize(line) + "\n")
	}
	return all.String()
}
