package cmdline

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
)

// completionFlag is the last argument when a shell asks for completions of the one before.
const completionFlag = "--generate-bash-completion"

// IsCompletion says whether a shell asks for completions.
func IsCompletion(args []string) bool { return len(args) > 1 && args[len(args)-1] == completionFlag }

// files is printed in place of the names of files, which the shell completes itself.
const files = ":files"

// Complete prints the completions of the last of the arguments before completionFlag, one in each
// line, some with a tab and a description. Nothing that goes wrong is worth a message.
func Complete(w io.Writer, args []string, program *cli.Command) {
	typed := joined(args[1 : len(args)-1])
	if len(typed) == 0 {
		return
	}
	current, before := typed[len(typed)-1], typed[:len(typed)-1]
	line := newCommandLine(before, program)
	prefix := ""
	var found []string
	name, assigned, isAssigned := strings.Cut(current, "=")
	switch {
	case line.lacking != "":
		found = line.values(line.lacking)
	case strings.HasPrefix(current, "-") && isAssigned:
		prefix = name + "="
		found = line.values(strings.TrimLeft(name, "-"))
		current = assigned
	case strings.HasPrefix(current, "-") && !line.separated:
		found = line.flagNames()
	default:
		found = line.next()
	}
	for _, f := range found {
		if f == files || strings.HasPrefix(f, current) {
			if f != files {
				f = prefix + f
			}
			_, _ = fmt.Fprintln(w, f)
		}
	}
}

// joined removes the "=" between a flag and its value, which is a word of its own in bash.
func joined(words []string) []string {
	n := len(words)
	switch {
	case n > 1 && words[n-1] == "=":
		return append(words[:n-1:n-1], "")
	case n > 2 && words[n-2] == "=":
		return append(words[:n-2:n-2], words[n-1])
	}
	return words
}

// commandLine is what the words before the one to complete say.
type commandLine struct {
	Invocation
	program *cli.Command
	named   bool // a command is named; else it is run, or has still to be named
}

func newCommandLine(args []string, program *cli.Command) *commandLine {
	l := &commandLine{Parse(append([]string{program.HelpName}, args...), program), program, true}
	if l.Command == program || l.implied {
		l.Command, l.named = findCommand(program.Subcommands, "run"), false
	}
	return l
}

func (l *commandLine) flagNames() []string {
	visible := l.Command.VisibleFlags()
	all := make([]string, 0, len(visible))
	for _, f := range visible {
		usage := ""
		if d, ok := f.(cli.DocGenerationFlag); ok {
			usage = "\t" + strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		all = append(all, "--"+FlagName(f)+usage)
	}
	return all
}

// The usage of a flag says what its values are.
var (
	filePlaceholder = regexp.MustCompile("`(FILE|DIR|PATH|SOCKET)`")
	choices         = regexp.MustCompile("`[A-Z]+`[a-z ]*: ([a-z]+(?:, [a-z]+)*),? or (a path|[a-z]+)")
)

// takesFile says whether the value of a flag is a path.
func takesFile(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && filePlaceholder.MatchString(d.GetUsage())
}

// values returns the values of a flag.
func (l *commandLine) values(name string) []string {
	f, ok := findFlag(l.Command, name).(cli.DocGenerationFlag)
	if !ok {
		return nil
	}
	if m := choices.FindStringSubmatch(f.GetUsage()); m != nil {
		return append(strings.Split(m[1], ", "), strings.Replace(m[2], "a path", files, 1))
	}
	switch {
	case takesFile(findFlag(l.Command, name)):
		return []string{files}
	case l.Command.Name == "debug" && name != "target": // its container is a new one
	case slices.Contains(names(f), "container"), slices.Contains(names(f), "target"):
		return l.containers()
	case slices.Contains(names(f), "only"):
		return podNames(l.pods())
	}
	return nil
}

// next returns what may come next that is no flag.
func (l *commandLine) next() []string {
	commands := l.Command.Subcommands
	if !l.named {
		commands = l.program.Subcommands
	}
	if len(commands) > 0 {
		all := make([]string, 0, len(commands)+1)
		if len(l.arguments) == 0 {
			for _, c := range commands {
				all = append(all, c.Name+"\t"+c.Usage)
			}
		}
		if !l.named {
			all = append(all, files)
		}
		return all
	}
	return l.argumentsOf(l.Command.ArgsUsage)
}

// argumentsOf returns what the usage of arguments stands for.
func (l *commandLine) argumentsOf(usage string) (all []string) {
	if strings.Contains(usage, "COMMAND") {
		for _, c := range l.program.Subcommands {
			all = append(all, c.Name)
		}
	}
	if strings.Contains(usage, "POD") {
		all = podNames(l.pods())
	}
	if strings.Contains(usage, "POD:") { // a path of it follows
		for i := range all {
			all[i] += ":"
		}
	}
	if strings.Contains(usage, "PATH") {
		all = append(all, files)
	}
	if choices := strings.Split(usage, "|"); len(choices) > 1 && !strings.Contains(usage, "POD") {
		return choices
	}
	return all
}

// pods returns the pods of earlier runs, as NAMESPACE/POD: those that have logs if these are wanted.
func (l *commandLine) pods() []string {
	switch l.Command.Name {
	case "logs", "events": // which are kept together
		return l.logged()
	case "describe":
		return append(l.recorded(), l.logged()...)
	}
	return l.recorded()
}

// directory returns the directory that a flag names, or its default.
func (l *commandLine) directory(name string) string {
	if dir := l.Value(name); dir != "" {
		return dir
	}
	if f, ok := findFlag(l.Command, name).(*cli.StringFlag); ok {
		return f.Value
	}
	return ""
}

// recorded returns the pods of earlier runs, as NAMESPACE/POD. Without root, which alone may read
// the records, it is those with logs.
func (l *commandLine) recorded() []string {
	all, err := record.Open(l.directory("root"), l.directory("state")).List()
	if err != nil {
		return l.logged()
	}
	var pods []string
	for _, r := range all {
		if r.Pod != nil {
			pods = append(pods, podspec.FullName(r.Pod))
		}
	}
	return pods
}

// logged returns the pods that have logs, as NAMESPACE/POD.
func (l *commandLine) logged() []string {
	entries, _ := os.ReadDir(l.directory("log-dir")) // nothing to complete
	var pods []string
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); len(parts) == 3 {
			pods = append(pods, parts[0]+"/"+parts[1])
		}
	}
	return pods
}

// podNames returns the shortest name of each pod, and its full name.
func podNames(pods []string) []string {
	slices.Sort(pods)
	pods = slices.Compact(pods)
	count := map[string]int{}
	for _, p := range pods {
		_, name, _ := strings.Cut(p, "/")
		count[name]++
	}
	var all []string
	for name, n := range count {
		if n == 1 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return append(all, pods...)
}

// containers returns the containers that have logs, of the pod on the command line if there is
// one.
func (l *commandLine) containers() []string {
	pod := "*"
	if len(l.arguments) > 0 {
		pod = l.arguments[0]
	}
	for i, argument := range l.arguments { // that of cp which is in a container; a colon is a word of its own in bash
		if before, _, ok := strings.Cut(argument, ":"); ok && l.Command.Name == "cp" {
			pod = cmp.Or(before, l.arguments[max(0, i-1)])
		}
	}
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "*", pod
	}
	dirs, _ := filepath.Glob(filepath.Join(l.directory("log-dir"), namespace+"_"+name+"_*", "[^.]*")) // nothing to complete
	names := make([]string, 0, len(dirs))
	for _, d := range dirs {
		names = append(names, filepath.Base(d))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
