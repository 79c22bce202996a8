package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce/cmd"
)

var update = flag.Bool("update", false, "write the golden files again")

// casesDir holds one directory for each story. Its file "story" has a line for each step:
//
//	$ ARGS...         run runonce; arguments that are files of the case may be relative
//	exit CODE         the exit code wanted of it, 0 when the line is missing
//	out FILE          what it writes to standard output
//	like FILE         what it writes is JSON that has these facts
//	err TEXT          a part of what it writes to standard error
//	facts POD[/CONTAINER], NAMESPACE/POD/CONTAINER FILE  what the applet facts of testdata/images/box has
//	                  printed in the container: what that sees from inside has these facts
//	interrupt D NAME  before the next command: send it the signal (INT, TERM) after D
//	kill POD CONTAINER CODE  end a container from outside, where the engine is scripted
//	scratch PATH      remove PATH of this machine before the story and after it
//	only memory       the case needs the scripted engine
//	only real         the case needs real containers; facts do
//	only 2.4          of daemons, the case needs the newer
//
// The networks of a story are those in the directory net.d of its case, whatever the machine has;
// without one its pods get a bridge of their own.
//
// Facts are written in YAML, as a part of what they are held against; unknowns.mismatches
// has what they can demand.
const casesDir = "../../testdata/cases"

// step is one command of a story.
type step struct {
	line      int
	args      []string
	exit      int
	out       string
	errs      []string
	like      string
	facts     []facts
	after     time.Duration // until the signal
	signal    syscall.Signal
	kills     [][]string // before the command
	shellLine string
}

// story is one case.
type story struct {
	dir     string
	steps   []step
	only    string // memory, real, 2.4: a real one
	scratch []string
}

func stories(t *testing.T) map[string]story {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(casesDir, "*", "story"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	all := map[string]story{}
	for _, f := range files {
		dir, err := filepath.Abs(filepath.Dir(f))
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseStory(dir)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[filepath.Base(dir)] = s
	}
	return all
}

func parseStory(dir string) (story, error) {
	s := story{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, "story"))
	if err != nil {
		return s, err
	}
	next := step{}
	for n, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		last := len(s.steps) - 1
		switch {
		case word == "" || word == "#":
		case word == "$":
			next.line, next.shellLine, next.args = n+1, rest, strings.Fields(rest)
			s.steps = append(s.steps, next)
			next = step{}
		case word == "only" && slices.Contains([]string{"memory", "real", "2.4"}, rest):
			s.only = rest
		case word == "scratch":
			s.scratch = append(s.scratch, rest)
		case word == "kill":
			next.kills = append(next.kills, strings.Fields(rest))
		case word == "interrupt":
			f := strings.Fields(rest)
			next.signal = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}[f[1]]
			next.after, err = time.ParseDuration(f[0])
		case last < 0:
			err = fmt.Errorf("nothing was run before")
		case word == "exit":
			s.steps[last].exit, err = strconv.Atoi(rest)
		case word == "out":
			s.steps[last].out = rest
		case word == "err":
			s.steps[last].errs = append(s.steps[last].errs, rest)
		case word == "like":
			s.steps[last].like = rest
		case word == "facts":
			s.steps[last].facts = append(s.steps[last].facts, parseFacts(rest))
		default:
			err = fmt.Errorf("unknown word %q", word)
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return s, nil
}

// stage is where a story is played.
type stage struct {
	io    cmd.IO
	flags []string // after those of the story
	logs  string   // the directory of logs
	kill  func(ctx context.Context, pod, container string, code int32) error
	// exact says that times and messages are the same in every run.
	exact bool
}

// play runs the steps of a story and compares what comes out.
func (s story) play(t *testing.T, on stage) {
	t.Helper()
	known := unknowns{}
	for _, path := range s.scratch {
		remove := func() {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
		remove()
		t.Cleanup(remove)
	}
	for _, st := range s.steps {
		for _, k := range st.kills {
			code, err := strconv.Atoi(k[2])
			if err != nil {
				t.Fatal(err)
			}
			if err := on.kill(t.Context(), k[0], k[1], int32(code)); err != nil {
				t.Fatal(err)
			}
		}
		code, stdout, stderr := s.run(t, st, on)
		if code != st.exit {
			t.Errorf("line %d: runonce %s: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", st.line, st.shellLine, code, st.exit, stdout, stderr)
		}
		for _, text := range st.errs {
			if !strings.Contains(stderr, text) {
				t.Errorf("line %d: runonce %s: standard error has no %q:\n%s", st.line, st.shellLine, text, stderr)
			}
		}
		if st.out != "" {
			compare(t, filepath.Join(s.dir, st.out), stdout, on.exact)
		}
		if st.like != "" {
			known.like(t, filepath.Join(s.dir, st.like), "runonce "+st.shellLine, stdout)
		}
		for _, f := range st.facts {
			f.check(t, s, on, known)
		}
	}
}

// run runs one command to its end.
func (s story) run(t *testing.T, st step, on stage) (code int, stdout, stderr string) {
	t.Helper()
	args := []string{"runonce"}
	for _, a := range st.args {
		if _, err := os.Stat(filepath.Join(s.dir, a)); err == nil {
			a = filepath.Join(s.dir, a)
		}
		args = append(args, a)
	}
	if st.args[0] != "completion" {
		args = append(args, on.flags...)
	}
	if st.args[0] == "run" || st.args[0] == "plan" {
		args = append(args, "--node", s.node())
	}
	if st.args[0] == "run" {
		args = append(args, "--cni-conf-dir", filepath.Join(s.dir, "net.d"))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if st.signal != 0 {
		defer time.AfterFunc(st.after, func() { cancel(cmd.Interrupt{Signal: st.signal}) }).Stop()
	}
	var out, errs bytes.Buffer
	io := on.io
	io.Stdout, io.Stderr, io.Stdin = &out, &errs, strings.NewReader("")
	code = cmd.Main(ctx, args, io)
	clean := func(b bytes.Buffer) string {
		return strings.NewReplacer(s.dir+"/", "", on.logs, "/var/log/pods").Replace(b.String())
	}
	return code, clean(out), clean(errs)
}

// node is the case's own node, or the one of all cases.
func (s story) node() string {
	own := filepath.Join(s.dir, "node.yaml")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(s.dir, "..", "node.yaml")
}

func compare(t *testing.T, path, got string, exact bool) {
	t.Helper()
	canon := func(text string) string { return canonical(t, path, text, exact) }
	old, err := os.ReadFile(path)
	if *update && exact && (err != nil || canon(string(old)) != canon(got)) {
		text := got
		if filepath.Ext(path) == ".json" {
			text = canon(got)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(canon(string(want)), canon(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// canonical is the same for the same story: it takes out of an output what is not the same in every run: addresses, and
// where time is real also times and the words of the machine.
func canonical(t *testing.T, path, text string, exact bool) string {
	t.Helper()
	switch filepath.Ext(path) {
	case ".table":
		return canonicalTable(text, exact)
	case ".json":
		var document any
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, text)
		}
		data, err := json.MarshalIndent(canonicalJSON("", document, exact), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	return text
}

var (
	gap     = regexp.MustCompile(` {2,}`)
	logFile = regexp.MustCompile(`last lines of \S+:`)
)

// canonicalTable replaces the cells of some columns, whose new widths move the others.
func canonicalTable(text string, exact bool) string {
	var out strings.Builder
	var titles []string
	for line := range strings.Lines(text) {
		line = logFile.ReplaceAllString(strings.TrimRight(line, "\n"), "last lines of LOG:")
		cells := gap.Split(line, -1)
		switch {
		case line == "" || strings.HasPrefix(line, " "):
			titles = nil
		case titles == nil:
			titles = cells
		case len(cells) == len(titles):
			for i, title := range titles {
				cells[i] = canonicalCell(title, cells[i], exact)
			}
		}
		if titles == nil {
			out.WriteString(line + "\n")
			continue
		}
		out.WriteString(strings.Join(cells, "  ") + "\n")
	}
	return out.String()
}

func canonicalCell(title, cell string, exact bool) string {
	switch {
	case title == "IP" && cell != "-":
		return "IP"
	case exact:
	case title == "TIME" || title == "AGE":
		return "TIME"
	case title == "REASON":
		cell, _, _ = strings.Cut(cell, ":")
	case title == "MESSAGE":
		return "MESSAGE"
	}
	return cell
}

// canonicalJSON replaces the values of some keys.
func canonicalJSON(key string, value any, exact bool) any {
	switch v := value.(type) {
	case map[string]any:
		if key == "status" {
			return map[string]any{"phase": v["phase"]}
		}
		for k, field := range v {
			v[k] = canonicalJSON(k, field, exact)
		}
		return v
	case []any:
		if key == "phases" || key == "podIPs" {
			return fmt.Sprintf("%d of them", min(len(v), 1))
		}
		for i, e := range v {
			v[i] = canonicalJSON("", e, exact)
		}
		return v
	}
	switch key {
	case "uid", "logPath":
		return value != "" && value != false
	case "elapsedSeconds":
		return "TIME"
	case "message":
		if !exact {
			return ""
		}
	}
	return value
}

// TestCases plays every story on a machine in memory, where time costs nothing.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, s := range stories(t) {
		if s.only == "real" || s.only == "2.4" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				logs := filepath.Join(m.root, "log")
				s.play(t, stage{
					io:    cmd.IO{Getenv: func(string) string { return "" }, Machine: bareMachine(), Open: m.open},
					flags: []string{"--root", m.root, "--state", m.root, "--log-dir", logs},
					logs:  logs,
					kill:  m.kill, exact: true,
				})
			})
		})
	}
}

// TestCasesAreWhole: every golden file of a case belongs to a step of its story.
func TestCasesAreWhole(t *testing.T) {
	t.Parallel()
	for name, s := range stories(t) {
		used := map[string]bool{"story": true, "node.yaml": true}
		for _, st := range s.steps {
			used[st.out], used[st.like] = true, true
			for _, f := range st.facts {
				used[f.file] = true
			}
		}
		entries, err := fs.ReadDir(os.DirFS(s.dir), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() && !used[e.Name()] {
				t.Errorf("%s: no step looks at %s", name, e.Name())
			}
		}
	}
}
