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
	command, rest := cutCommand(args[1:], commands)
	if command == nil {
		if firstArgument(rest, valueFlags(commands)) < 0 {
			switch {
			case containsAny(rest, "-h", "--help", "-help"):
				return []string{args[0], "--help"}
			case containsAny(rest, "-v", "--version", "-version"):
				return []string{args[0], "version"}
			}
		}
		command = findCommand(commands, "run")
	}
	out := []string{args[0]}
	var last *cli.Command
	for command != nil {
		out, last = append(out, command.Name), command
		command, rest = cutCommand(rest, command.Subcommands)
	}
	flags, arguments := splitFlags(rest, valueFlags([]*cli.Command{last}))
	return slices.Concat(out, flags, arguments)
}

// cutCommand returns the command that the first argument names, nil if there is none, and the
// other arguments.
func cutCommand(args []string, commands []*cli.Command) (*cli.Command, []string) {
	at := firstArgument(args, valueFlags(commands))
	if at < 0 {
		return nil, args
	}
	command := findCommand(commands, args[at])
	if command == nil {
		return nil, args
	}
	return command, slices.Concat(args[:at], args[at+1:])
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
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
	for i := 0; i < len(args); i++ {
		switch name, isFlag := flagName(args[i]); {
		case args[i] == "--":
			return -1
		case !isFlag:
			return i
		case takesValue[name]:
			i++
		}
	}
	return -1
}

// splitFlags separates flags, with their values, from arguments. Everything after "--" is an
// argument.
func splitFlags(args []string, takesValue map[string]bool) (flags, arguments []string) {
	for i := 0; i < len(args); i++ {
		switch name, isFlag := flagName(args[i]); {
		case args[i] == "--":
			return flags, slices.Concat([]string{"--"}, arguments, args[i+1:])
		case !isFlag:
			arguments = append(arguments, args[i])
		case takesValue[name] && i+1 < len(args):
			flags = append(flags, args[i], args[i+1])
			i++
		default:
			flags = append(flags, args[i])
		}
	}
	return flags, arguments
}

// flagName returns the name of a flag, "" if its value follows after "=".
func flagName(arg string) (name string, isFlag bool) {
	if len(arg) < 2 || arg[0] != '-' {
		return "", false
	}
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	if strings.Contains(name, "=") {
		name = ""
	}
	return name, true
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
