// Package cmdline reads the arguments of the program as people write them: it puts them in the
// order that the command line library needs, explains wrong ones, and completes unfinished ones.
package cmdline

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Reorder puts the arguments in the order that the command line library needs: the command,
// its flags, its arguments. Users may put flags anywhere, before the command or after its
// arguments, and may leave out "run".
func Reorder(args []string, commands []*cli.Command) []string {
	if len(args) < 2 {
		return args
	}
	path, rest := cutCommands(args[1:], commands)
	if len(path) == 0 {
		if firstArgument(rest, valueFlags(commands)) < 0 {
			switch {
			case containsAny(rest, "-h", "--help", "-help"):
				return []string{args[0], "--help"}
			case containsAny(rest, "-v", "--version", "-version"):
				return []string{args[0], "version"}
			}
		}
		path = []*cli.Command{findCommand(commands, "run")}
	}
	out := []string{args[0]}
	for _, command := range path {
		out = append(out, command.Name)
	}
	var dashes, arguments []string
	words, _ := parse(rest, valueFlags(path[len(path)-1:]))
	for _, w := range words {
		switch w.kind {
		case flag, value:
			out = append(out, w.text)
		case separator:
			dashes = []string{w.text}
		case argument:
			arguments = append(arguments, w.text)
		}
	}
	return slices.Concat(out, dashes, arguments)
}

// cutCommands returns the command that the first argument names and the subcommand that the next
// one names, if there are any, and the other arguments.
func cutCommands(args []string, commands []*cli.Command) (path []*cli.Command, rest []string) {
	at := firstArgument(args, valueFlags(commands))
	if at < 0 {
		return nil, args
	}
	command := findCommand(commands, args[at])
	if command == nil {
		return nil, args
	}
	path, rest = cutCommands(slices.Concat(args[:at], args[at+1:]), command.Subcommands)
	return append([]*cli.Command{command}, path...), rest
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// findFlag returns the flag of the command that has the name, nil if there is none.
func findFlag(command *cli.Command, name string) cli.Flag {
	for _, f := range command.Flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func containsAny(args []string, names ...string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(names, a) })
}

// firstArgument returns the index of the first argument that is neither a flag nor the value of
// one, or -1.
func firstArgument(args []string, takesValue map[string]bool) int {
	words, _ := parse(args, takesValue)
	i := slices.IndexFunc(words, func(w word) bool { return w.kind == argument || w.kind == separator })
	if i < 0 || words[i].kind == separator {
		return -1
	}
	return i
}

// kind is what a word of the command line is.
type kind int

const (
	argument  kind = iota // a command, a path or a name
	flag                  // perhaps with its value, after "="
	value                 // of the flag before it
	separator             // the first "--"
)

// word is one word of the command line.
type word struct {
	text  string
	kind  kind
	flag  string // the name of the flag, or of the one whose value this is
	value string // of the flag, if it is in this word
}

// parse says what each word is, and which flag at the end lacks its value. Everything after "--"
// is an argument.
func parse(args []string, takesValue map[string]bool) (words []word, lacking string) {
	onlyArguments := false
	for _, text := range args {
		w := word{text: text}
		switch {
		case lacking != "":
			w.kind, w.flag, w.value, lacking = value, lacking, text, ""
		case onlyArguments || len(text) < 2 || text[0] != '-':
		case text == "--":
			w.kind, onlyArguments = separator, true
		default:
			var assigned bool
			w.kind = flag
			w.flag, w.value, assigned = strings.Cut(strings.TrimPrefix(text[1:], "-"), "=")
			if takesValue[w.flag] && !assigned {
				lacking = w.flag
			}
		}
		words = append(words, w)
	}
	return words, lacking
}

// Value returns the last value of a flag with these names in arguments that may be invalid.
func Value(args []string, names ...string) string {
	takesValue := map[string]bool{}
	for _, name := range names {
		takesValue[name] = true
	}
	last := ""
	words, _ := parse(args, takesValue)
	for _, w := range words {
		if takesValue[w.flag] {
			last = w.value
		}
	}
	return last
}

// valueFlags returns which flags of the commands, and of their subcommands, take a value.
func valueFlags(commands []*cli.Command) map[string]bool {
	takesValue := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range f.Names() {
				takesValue[name] = takesValue[name] || !isBool
			}
		}
		for name, takes := range valueFlags(c.Subcommands) {
			takesValue[name] = takesValue[name] || takes
		}
	}
	return takesValue
}
