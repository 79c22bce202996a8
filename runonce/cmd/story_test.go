package cmd_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runonce/cmd"
)

var update = flag.Bool("update", false, "write the golden files again")

// casesDir holds the stories: scripts of github.com/rogpeppe/go-internal/testscript, each in
// one file NAME.txtar, with the script first and its files after it. Besides testscript's own
// commands ("cmp stdout FILE", "stderr PATTERN", "! COMMAND", "[CONDITION] skip", ...) there are:
//
//	runonce ARGS...              run runonce; arguments that are files of the story may be relative
//	exitcode N                   the "! runonce" on the line before ended with this exit code
//	cmpout FILE                  standard output is FILE, a .table or a .json, except for what
//	                             differs from run to run (see canonical)
//	match FILE                   standard output is JSON that matches FILE (see mismatches)
//	facts [NS/]POD[/CONTAINER] FILE  what the container sees from inside, as printed by the
//	                             applet facts of testdata/images/box, matches FILE
//	input LINE                   give the next runonce the line as its standard input
//	interrupt WHEN SIGNAL        send the next runonce the signal (HUP, INT or TERM) after a duration,
//	                             or once its standard error matches a pattern
//	killcontainer NS/POD CONTAINER CODE  end a container from outside; in memory only
//	alone                        no other story with this word runs on this machine meanwhile: all of
//	                             them use ports of the machine, and some the same ones
//	apply PATH FILE              apply the object of FILE at its path in the API; on a cluster only
//	variable NAME=VALUE          set an environment variable for the commands after it; WORK/ is the
//	                             story's directory
//	scratch PATH                 in the files of the story, PATH is one of this machine that nothing
//	                             else uses and that is absent; it is removed after the story
//	waits                        the story spends its time waiting: on a daemon it runs at the
//	                             same time as the others, with a root of its own; its pods must
//	                             not be equal to those of another story
//
// The conditions are [memory], the engine in memory, [daemon], a containerd daemon,
// [containerd-1.6], a daemon of that version, and [cluster], a Kubernetes cluster.
//
// "run", "watch" and "plan" get the node of node.yaml unless they name another, on a cluster instead
// --create-namespace, and "run" and "watch" get --settle 100ms unless they say otherwise. The networks are those
// in the story's directory net.d, whatever the machine has; without it the pods get a bridge
// of their own. A story's directory etc/runonce has the configuration files of the machine. In memory, the files of the machine
// are those in the directory machine. A command with --root has it instead of that of the story.
// With -o json, runonce must print a document that matches its schema, also when
// it fails. In the output of runonce the paths of the story's files are relative, and the
// directory of logs is /var/log/pods.
const casesDir = "../../testdata/cases"

// words are the commands above.
func words() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"runonce":       func(ts *testscript.TestScript, neg bool, args []string) { storyOf(ts).runonce(ts, neg, args) },
		"exitcode":      word(1, (*story).exitcode),
		"cmpout":        word(1, (*story).cmpout),
		"match":         word(1, (*story).match),
		"facts":         word(2, (*story).facts),
		"input":         word(1, (*story).input),
		"interrupt":     word(2, (*story).interrupt),
		"killcontainer": word(3, (*story).killContainer),
		"alone":         word(0, (*story).alone),
		"apply":         word(2, (*story).apply),
		"forward":       word(2, (*story).forward),
		"scratch":       word(1, (*story).scratch),
		"serves":        word(2, (*story).serves),
		"variable":      word(1, (*story).variable),
		"waits":         word(0, func(*story, *testscript.TestScript, []string) {}),
	}
}

// word is a command with n arguments, which cannot be negated.
func word(n int, f func(*story, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != n {
			ts.Fatalf("want %d arguments and no !", n)
		}
		f(storyOf(ts), ts, args)
	}
}

// engineUnderTest is where stories run.
type engineUnderTest struct {
	conditions []string // those that hold
	// open returns what one story runs on.
	open func(t *testing.T) target
	// within, if set, is called to run each story.
	within func(t *testing.T, run func(t *testing.T))
}

// target is what one story runs on.
type target struct {
	world cmd.IO
	flags []string // after those of the story
	logs  string   // the directory of logs
	// kill ends a container from outside.
	kill func(ctx context.Context, pod, container string, code int32) error
	// cluster says that the flags choose a cluster.
	cluster bool
	// applyObject applies an object at its path in the API of the cluster.
	applyObject func(ctx context.Context, path, object string) error
	// exact says that times and messages are the same in every run.
	exact bool
	// clear, if set, takes down what a story has left, while its files are still there.
	clear func(t *testing.T)
}

// story is one that runs.
type story struct {
	target       // once a command needs it
	open         func(t *testing.T) target
	t            *testing.T
	dir          string
	code         int // of the last command
	stdin        string
	interruption *interruption
	known        unknowns
	environ      []string
	updated      map[string]string // golden files to write again
}

type storyKey struct{}

func storyOf(ts *testscript.TestScript) *story {
	s, ok := ts.Value(storyKey{}).(*story)
	if !ok {
		ts.Fatalf("the story was not set up")
	}
	return s
}

// storyT makes a testscript.T of a *testing.T. Whether stories run in parallel is up to the
// engine.
type storyT struct {
	*testing.T
	within func(t *testing.T, run func(t *testing.T))
}

func (t storyT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(sub *testing.T) {
		if t.within == nil {
			f(storyT{T: sub})
			return
		}
		t.within(sub, func(sub *testing.T) { f(storyT{T: sub}) })
	})
}

func (storyT) Parallel() {}

func (storyT) Verbose() bool { return testing.Verbose() }

// run runs the stories of the files.
func (e engineUnderTest) run(t *testing.T, files ...string) {
	t.Helper()
	if len(files) == 0 {
		return
	}
	testscript.RunT(storyT{T: t, within: e.within}, testscript.Params{
		Files: files, Cmds: words(), ContinueOnError: true, RequireUniqueNames: true,
		UpdateScripts: *update && slices.Contains(e.conditions, "memory"),
		Condition: func(name string) (bool, error) {
			if !slices.Contains([]string{"memory", "daemon", "containerd-1.6", "cluster"}, name) {
				return false, fmt.Errorf("no such condition")
			}
			return slices.Contains(e.conditions, name), nil
		},
		Setup: func(env *testscript.Env) error {
			sub, ok := env.T().(storyT)
			if !ok {
				return fmt.Errorf("a story of %T", env.T())
			}
			s := &story{open: e.open, t: sub.T, dir: env.WorkDir, known: unknowns{}, updated: map[string]string{}}
			env.Values[storyKey{}] = s
			env.Defer(s.end)
			return nil
		},
	})
}

// storyFiles returns the paths of all stories.
func storyFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(casesDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	return files
}

// storyDir writes the files of a story to a directory and returns it.
func storyDir(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range parsed(t, filepath.Join(casesDir, name+".txtar")).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func parsed(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *story) runonce(ts *testscript.TestScript, neg bool, args []string) {
	s.code = s.main(ts.Stdout(), ts.Stderr(), args)
	if (s.code != 0) != neg {
		ts.Fatalf("exit code %d", s.code)
	}
}

// clusterCommands are those that work with a cluster.
var clusterCommands = []string{"run", "plan", "ps", "logs", "events", "exec", "attach", "debug", "cp", "port-forward", "describe", "top", "wait", "down"}

// reach makes what the story runs on available.
func (s *story) reach() {
	if s.world.Open == nil {
		s.target = s.open(s.t)
	}
}

// arguments returns those of the program for a command of the story.
func (s *story) arguments(args []string) []string {
	s.reach()
	all := []string{"runonce"}
	for _, a := range args {
		if path := filepath.Join(s.dir, a); fileExists(path) {
			a = path
		}
		all = append(all, a)
	}
	var command string
	if len(args) > 0 {
		command = args[0]
	}
	flags := s.defaults(command, args)
	if command != "completion" && command != "convert" && !slices.Contains(args, "--root") && (!s.cluster || slices.Contains(clusterCommands, command)) {
		flags = slices.Concat(s.flags, flags)
	}
	if dashes := slices.Index(all, "--"); dashes >= 0 {
		return slices.Insert(all, dashes, flags...)
	}
	return append(all, flags...)
}

// main runs one command to its end.
func (s *story) main(stdout, stderr io.Writer, args []string) int {
	all := s.arguments(args)
	var out, errs bytes.Buffer
	world := s.world
	world.Stdout, world.Stderr, world.Stdin = &out, &errs, strings.NewReader(s.stdin)
	if fileExists(filepath.Join(s.dir, configDir)) {
		world.Machine = configuredMachine{world.Machine, os.DirFS(s.dir)}
	}
	world.Environ = func() []string { return s.environ }
	world.Getenv = s.getenv
	if len(args) > 0 && args[0] == "convert" {
		world.Program = filepath.Join(converterDir(s.t), "runonce") // beside which the converter is
	}
	if files := filepath.Join(s.dir, "machine"); s.exact && fileExists(files) {
		world.Machine = os.DirFS(files)
	}
	if i := s.interruption; i != nil {
		signals := make(chan os.Signal, 1)
		stderr, end := i.begin(signals, &errs)
		defer end()
		world.Signals, world.Stderr = signals, stderr
		s.interruption = nil
	}
	s.stdin = ""
	code := cmd.Main(s.t.Context(), all, world)
	if strings.Contains(strings.Join(args, " ")+" ", "-o json ") {
		checkDocument(s.t, args, out.String())
	}
	clean := strings.NewReplacer(s.dir+"/", "", s.logs, "/var/log/pods")
	for to, text := range map[io.Writer]string{stdout: out.String(), stderr: errs.String()} {
		if _, err := clean.WriteString(to, text); err != nil {
			s.t.Error(err)
		}
	}
	return code
}

// defaults returns the flags that a command gets unless it has them.
func (s *story) defaults(command string, args []string) []string {
	var flags []string
	runs := command == "run" || command == "watch"
	switch {
	case !runs && command != "plan":
	case s.cluster && slices.Contains(args, "--create-namespace=false"):
	case s.cluster:
		flags = append(flags, "--create-namespace")
	case !slices.Contains(args, "--node"):
		flags = append(flags, "--node", nodeFile())
	}
	if runs && !s.cluster {
		dir := filepath.Join(s.dir, "net.d")
		_ = os.MkdirAll(dir, 0o755) // it must exist
		flags = append(flags, "--cni-conf-dir", dir)
	}
	if runs && s.cluster && !slices.Contains(args, "--timeout") {
		flags = append(flags, "--timeout", "10m") // much longer than it takes
	}
	if runs && !slices.Contains(args, "--settle") {
		flags = append(flags, "--settle", "100ms")
	}
	return flags
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *story) exitcode(ts *testscript.TestScript, args []string) {
	if want := args[0]; strconv.Itoa(s.code) != want {
		ts.Fatalf("exit code %d, want %s", s.code, want)
	}
}

func (s *story) input(_ *testscript.TestScript, args []string) { s.stdin = args[0] + "\n" }

func (s *story) killContainer(ts *testscript.TestScript, args []string) {
	code, err := strconv.ParseInt(args[2], 10, 32)
	ts.Check(err)
	ts.Check(s.kill(s.t.Context(), args[0], args[1], int32(code)))
}

func (s *story) apply(ts *testscript.TestScript, args []string) {
	s.reach()
	ts.Check(s.applyObject(s.t.Context(), args[0], ts.ReadFile(args[1])))
}

func (s *story) scratch(ts *testscript.TestScript, args []string) {
	dir, err := os.MkdirTemp("", "story-")
	ts.Check(err)
	path := []byte(filepath.Join(dir, "scratch"))
	ts.Check(filepath.WalkDir(s.dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, bytes.ReplaceAll(content, []byte(args[0]), path), 0o600)
	}))
	ts.Defer(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *story) alone(ts *testscript.TestScript, _ []string) {
	lock, err := flock.Acquire(s.t.Context(), filepath.Join(os.TempDir(), "runonce-stories.lock"), func(flock.Holder) {})
	ts.Check(err)
	s.t.Cleanup(func() { _ = lock.Close() }) // once its pods are gone
}

func (s *story) variable(_ *testscript.TestScript, args []string) {
	s.environ = append(s.environ, strings.ReplaceAll(args[0], "WORK/", s.dir+"/"))
}

func (s *story) getenv(name string) string {
	for _, e := range slices.Backward(s.environ) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

func (s *story) match(ts *testscript.TestScript, args []string) {
	s.like(ts, args[0], ts.ReadFile("stdout"))
}

func (s *story) cmpout(ts *testscript.TestScript, args []string) {
	file, got := args[0], ts.ReadFile("stdout")
	canon := func(text string) string { return canonical(s.t, file, text, s.exact) }
	if diff := cmp.Diff(canon(ts.ReadFile(file)), canon(got)); diff != "" {
		if *update && s.exact {
			if filepath.Ext(file) == ".json" {
				got = canon(got)
			}
			s.updated[file] = got
			return
		}
		ts.Fatalf("%s (-want +got):\n%s", file, diff)
	}
}

// end takes down what the story has left, and with -update writes its file again.
func (s *story) end() {
	if s.clear != nil {
		s.clear(s.t)
	}
	if len(s.updated) == 0 {
		return
	}
	path := filepath.Join(casesDir, filepath.Base(s.t.Name())+".txtar")
	a := parsed(s.t, path)
	for i, f := range a.Files {
		if text, ok := s.updated[f.Name]; ok {
			a.Files[i].Data = []byte(text)
		}
	}
	if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
		s.t.Error(err)
	}
}

// TestStories runs every story on a machine in memory, where time costs nothing.
func TestStories(t *testing.T) {
	t.Parallel()
	engineUnderTest{
		conditions: []string{"memory"},
		open: func(t *testing.T) target {
			m := newMemory(t)
			logs := filepath.Join(m.root, "log")
			return target{
				world: cmd.IO{Getenv: func(string) string { return "" }, Machine: bareMachine(), Open: m.open, Examine: m.examine, Inotify: noInotify},
				flags: []string{"--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", logs},
				logs:  logs,
				kill:  m.kill, exact: true,
			}
		},
		within: func(t *testing.T, run func(t *testing.T)) {
			t.Parallel()
			skipped := false
			synctest.Test(t, func(inner *testing.T) {
				inner.Cleanup(func() { skipped = inner.Skipped() })
				run(inner)
			})
			if skipped {
				t.SkipNow()
			}
		},
	}.run(t, storyFiles(t)...)
}

// TestStoriesAreWhole: every file of a story belongs to a line of its script, and a command
// that fails says by which exit code.
func TestStoriesAreWhole(t *testing.T) {
	t.Parallel()
	for _, path := range storyFiles(t) {
		name, story := filepath.Base(path), parsed(t, path)
		used := map[string]bool{"net.d": true, "machine": true, "etc": true}
		failed := ""
		for line := range strings.Lines(string(story.Comment)) {
			f := strings.Fields(line)
			if failed != "" && (len(f) == 0 || f[0] != "exitcode") {
				t.Errorf("%s: %s: no exitcode in the next line", name, failed)
			}
			failed = ""
			if len(f) > 1 && f[0] == "!" && f[1] == "runonce" {
				failed = strings.TrimSpace(line)
			}
			if len(f) > 0 && f[0] != "#" {
				for _, arg := range f[1:] {
					used[arg] = true
				}
			}
		}
		for _, f := range story.Files {
			if top, _, _ := strings.Cut(f.Name, "/"); !used[top] {
				t.Errorf("%s: no line of the script names %s", name, top)
			}
		}
	}
}
