// Package cmdline reads the arguments of the program as people write them: it finds the command,
// its flags and its arguments, explains wrong ones, and completes unfinished ones.
//
// Commands and flags are those of the command line library. Its own parser wants flags before
// arguments, and its help needs text/template, with which the linker keeps every method of every
// package: 7 MB of the program, and 3 MiB of its memory.
package cmdline

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Invocation is a command with its flags and arguments, which may be invalid.
type Invocation struct {
	Command *cli.Command

	path      []string // the names of the command and its subcommand; none for the program itself
	implied   bool     // the arguments name no command
	words     []word
	lacking   string // the last flag, if it has no value
	unknown   string // the first argument, if it names no command
	arguments []string
}

// Parse returns what the arguments say, of which the first is the program's name. Flags may be
// anywhere, before the command or after its arguments, and "run" may be left out.
func Parse(args []string, program *cli.Command) Invocation {
	i := Invocation{Command: program}
	if len(args) < 2 {
		return i
	}
	commands := program.Subcommands
	path, rest, first := cutCommands(args[1:], commands)
	if len(path) == 0 {
		i.implied = true
		command := "run"
		switch {
		case first >= 0:
			i.unknown = rest[first]
		case containsAny(rest, "-h", "--help", "-help"):
			command, rest = "help", nil
		case containsAny(rest, "-v", "--version", "-version"):
			command, rest = "version", nil
		}
		path = []*cli.Command{findCommand(commands, command)}
	}
	for _, command := range path {
		i.path = append(i.path, command.Name)
	}
	i.Command = path[len(path)-1]
	i.words, i.lacking = parse(rest, valueFlags(path[len(path)-1:]))
	for _, w := range i.words {
		if w.kind == kindArgument {
			i.arguments = append(i.arguments, w.text)
		}
	}
	return i
}

// Name returns the names of the command and its subcommand; "" for the program itself.
func (i Invocation) Name() string { return strings.Join(i.path, " ") }

// Value returns the last value of a flag with one of these names.
func (i Invocation) Value(names ...string) string {
	last := ""
	for _, w := range i.words {
		if slices.Contains(names, w.flag) && w.kind != kindName {
			last = w.value
		}
	}
	return last
}

// Context returns what the command's functions take. An error says what is wrong with a flag.
func (i Invocation) Context(ctx context.Context) (*cli.Context, error) {
	set := flag.NewFlagSet(i.Command.Name, flag.ContinueOnError)
	for _, f := range i.Command.Flags {
		if err := f.Apply(set); err != nil {
			return nil, fmt.Errorf("flag %s: %w", dashed(FlagName(f)), err)
		}
	}
	given := map[string]bool{}
	for _, w := range i.words {
		if w.kind != kindFlag && w.kind != kindValue {
			continue
		}
		if err := i.set(set, w, given); err != nil {
			return nil, fmt.Errorf("%w; see %q", err, i.Command.HelpName+" --help")
		}
	}
	if i.lacking != "" {
		return nil, fmt.Errorf("%s: needs a value", dashed(i.lacking))
	}
	if err := set.Parse(append([]string{"--"}, i.arguments...)); err != nil {
		return nil, err
	}
	c := cli.NewContext(nil, set, nil)
	c.Context, c.Command = ctx, i.Command
	return c, nil
}

// set sets the flag of a word, under its first name.
func (i Invocation) set(set *flag.FlagSet, w word, given map[string]bool) error {
	f := findFlag(i.Command, w.flag)
	if f == nil {
		return unknownFlag(i.Command, w.flag)
	}
	name := FlagName(f)
	if _, isBool := f.(*cli.BoolFlag); given[name] && !isBool && !repeatable(f) {
		return fmt.Errorf("%s is given twice, and takes one value", dashed(name))
	}
	given[name] = true
	if err := set.Set(name, w.value); err != nil {
		return fmt.Errorf("%s %q: %s", dashed(w.flag), w.value, wantedValue(f, w.value, err.Error()))
	}
	return nil
}

// cutCommands returns the command that the first argument names and the subcommand that the next
// one names, if there are any, the other words, and the index in them of the first argument, or -1.
func cutCommands(words []string, commands []*cli.Command) (path []*cli.Command, rest []string, first int) {
	first = firstArgument(words, valueFlags(commands))
	if first < 0 {
		return nil, words, first
	}
	command := findCommand(commands, words[first])
	if command == nil {
		return nil, words, first
	}
	path, rest, first = cutCommands(slices.Concat(words[:first], words[first+1:]), command.Subcommands)
	return append([]*cli.Command{command}, path...), rest, first
}

// FlagName returns the name of a flag, without its aliases.
func FlagName(f cli.Flag) string { return names(f)[0] }

// names returns the names of a flag. The library's own method has a regular expression look at each
// of them, and there are hundreds.
func names(f cli.Flag) []string {
	switch f := f.(type) {
	case *cli.BoolFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *cli.StringFlag:
		return append([]string{f.Name}, f.Aliases...)
	}
	return f.Names()
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
		if slices.Contains(names(f), name) {
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
	i := slices.IndexFunc(words, func(w word) bool { return w.kind == kindArgument || w.kind == kindSeparator })
	if i < 0 || words[i].kind == kindSeparator {
		return -1
	}
	return i
}

// kind is what a word of the command line is.
type kind int

const (
	kindArgument  kind = iota // a command, a path or a name
	kindFlag                  // a flag with its value, which is after "=", or "true" without one
	kindName                  // a flag whose value is the next word
	kindValue                 // of the flag before it
	kindSeparator             // the first "--"
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
			w.kind, w.flag, w.value, lacking = kindValue, lacking, text, ""
		case onlyArguments || len(text) < 2 || text[0] != '-':
		case text == "--":
			w.kind, onlyArguments = kindSeparator, true
		default:
			var assigned bool
			w.kind = kindFlag
			w.flag, w.value, assigned = strings.Cut(strings.TrimPrefix(text[1:], "-"), "=")
			switch {
			case assigned:
			case takesValue[w.flag]:
				w.kind, lacking = kindName, w.flag
			default:
				w.value = "true"
			}
		}
		words = append(words, w)
	}
	return words, lacking
}

// valueFlags returns which flags of the commands, and of their subcommands, take a value.
func valueFlags(commands []*cli.Command) map[string]bool {
	takesValue := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, name := range names(f) {
				takesValue[name] = takesValue[name] || !isBool
			}
		}
		for name, takes := range valueFlags(c.Subcommands) {
			takesValue[name] = takesValue[name] || takes
		}
	}
	return takesValue
}
