// Package cmdline reads the arguments of the program as people write them: it finds the command,
// its flags and its arguments, explains wrong ones, and completes unfinished ones.
//
// Commands and flags are those of the command line library. Its own parser wants flags before
// arguments, and its help needs text/template, with which the linker keeps every method of every
// package: 7 MB of the program, and 3 MiB of its memory.
package cmdline

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Invocation is a command with its flags and arguments, which may be invalid.
type Invocation struct {
	Command *cli.Command

	words
	path    []string // the names of the command and its subcommand; none for the program itself
	implied bool     // the arguments name no command
	unknown string   // the first argument, if it names no command

	values *flag.FlagSet   // after SetFlags
	given  map[string]bool // flags on the command line, by their first name
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
	i.words = parse(rest, valueFlags(path[len(path)-1:]))
	return i
}

// Name returns the names of the command and its subcommand; "" for the program itself.
func (i Invocation) Name() string { return strings.Join(i.path, " ") }

// Separated returns the arguments before and after "--".
func (i Invocation) Separated() (before, after []string) {
	if !i.separated {
		return i.arguments, nil
	}
	return i.arguments[:i.before], i.arguments[i.before:]
}

// Value returns the last value of a flag with one of these names.
func (i Invocation) Value(names ...string) string {
	last := ""
	for _, f := range i.flags {
		if slices.Contains(names, f.name) {
			last = f.value
		}
	}
	return last
}

// SetFlags gives the flags their values, and returns them with the arguments. An error says what is wrong
// with a flag; the others have their values all the same.
func (i *Invocation) SetFlags() (*flag.FlagSet, error) {
	i.values = flag.NewFlagSet(i.Command.Name, flag.ContinueOnError)
	for _, f := range i.Command.Flags {
		if err := f.Apply(i.values); err != nil {
			return nil, fmt.Errorf("flag %s: %w", dashed(FlagName(f)), err)
		}
	}
	var problem error
	i.given = map[string]bool{}
	for _, f := range i.flags {
		if err := i.set(f); err != nil && problem == nil {
			problem = fmt.Errorf("%w; see %q", err, i.Command.HelpName+" --help")
		}
	}
	if problem == nil && i.lacking != "" {
		problem = fmt.Errorf("%s: needs a value", dashed(i.lacking))
	}
	return i.values, cmp.Or(problem, i.values.Parse(append([]string{"--"}, i.arguments...)))
}

// Given returns the flags that are on the command line.
func (i *Invocation) Given() []cli.Flag {
	return slices.DeleteFunc(slices.Clone(i.Command.Flags), func(f cli.Flag) bool { return !i.given[FlagName(f)] })
}

// set sets a flag, under its first name. Of several values the last one is set.
func (i *Invocation) set(given flagValue) (err error) {
	f := findFlag(i.Command, given.name)
	if f == nil {
		return unknownFlag(i.Command, given.name)
	}
	name := FlagName(f)
	if _, isBool := f.(*cli.BoolFlag); i.given[name] && !isBool && !repeatable(f) {
		err = fmt.Errorf("%s is given twice but takes one value", dashed(name))
	}
	i.given[name] = true
	if err := i.values.Set(name, given.value); err != nil {
		return fmt.Errorf("%s %q: %s", dashed(given.name), given.value, cmp.Or(mistake(f, given.value), err.Error()))
	}
	return err
}

// cutCommands returns the command that the first argument names and the subcommand that the next
// one names, if there are any, the other words, and the index in them of the first argument, or -1.
func cutCommands(words []string, commands []*cli.Command) (path []*cli.Command, rest []string, first int) {
	first = parse(words, valueFlags(commands)).first
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

// words is what the words of a command line are.
type words struct {
	flags     []flagValue
	lacking   string // the last flag, if it has no value
	arguments []string
	first     int  // the index of the first argument before "--", or -1
	separated bool // there is a "--", after which everything is an argument
	before    int  // how many arguments are before it
}

// flagValue is a flag with its value, which is "true" without one.
type flagValue struct{ name, value string }

// parse says what the words are.
func parse(all []string, takesValue map[string]bool) words {
	w := words{first: -1}
	for i, text := range all {
		switch {
		case w.lacking != "":
			w.flags, w.lacking = append(w.flags, flagValue{w.lacking, text}), ""
		case w.separated || len(text) < 2 || text[0] != '-':
			if w.arguments = append(w.arguments, text); !w.separated && w.first < 0 {
				w.first = i
			}
		case text == "--":
			w.separated, w.before = true, len(w.arguments)
		default:
			name, value, assigned := strings.Cut(strings.TrimPrefix(text[1:], "-"), "=")
			short := cutBundle(text, takesValue)
			for _, letter := range short {
				w.flags = append(w.flags, flagValue{letter, "true"})
			}
			name = strings.TrimPrefix(name, strings.Join(short, ""))
			switch {
			case assigned:
				w.flags = append(w.flags, flagValue{name, value})
			case takesValue[name]:
				w.lacking = name
			default:
				w.flags = append(w.flags, flagValue{name, "true"})
			}
		}
	}
	return w
}

// standsAlone says whether the flag takes a value only after "=", and else is "true", as package flag has it.
func standsAlone(f cli.Flag) bool {
	switch f := f.(type) {
	case *cli.BoolFlag:
		return true
	case *cli.GenericFlag:
		v, ok := f.Value.(interface{ IsBoolFlag() bool })
		return ok && v.IsBoolFlag()
	}
	return false
}

// cutBundle returns the flags of one letter that a word begins with, which the last flag in it follows: i of -it.
func cutBundle(word string, takesValue map[string]bool) (short []string) {
	name, _, _ := strings.Cut(word[1:], "=")
	if _, known := takesValue[name]; known || len(name) < 2 {
		return nil
	}
	for i, letter := range name {
		takes, known := takesValue[string(letter)]
		switch last := i == len(name)-1; {
		case !known || takes && !last:
			return nil
		case !last:
			short = append(short, string(letter))
		}
	}
	return short
}

// valueFlags returns which flags of the commands, and of their subcommands, take a value.
func valueFlags(commands []*cli.Command) map[string]bool {
	takesValue := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			for _, name := range names(f) {
				takesValue[name] = takesValue[name] || !standsAlone(f)
			}
		}
		for name, takes := range valueFlags(c.Subcommands) {
			takesValue[name] = takesValue[name] || takes
		}
	}
	return takesValue
}
