package cmd

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completionFlag ends the arguments of a shell that asks for completions.
const completionFlag = "--generate-bash-completion"

// arrange puts the arguments in the order that the command line library understands:
// the command, its flags, its arguments. Users may put flags anywhere, before the
// command or after its arguments, and leave the command out: then it is run.
func arrange(args []string, commands []*cli.Command) []string {
	if len(args) < 2 || args[len(args)-1] == completionFlag {
		return args
	}
	rest := args[1:]
	at := firstArgument(rest, allFlags(commands))
	if at < 0 {
		switch {
		case has(rest, "-h", "--help", "-help"):
			return []string{args[0], "--help"}
		case has(rest, "-v", "--version", "-version"):
			return []string{args[0], "version"}
		}
		at = 0
		rest = append([]string{"run"}, rest...)
	}
	command := named(commands, rest[at])
	if command == nil {
		command = named(commands, "run")
		rest = append([]string{"run"}, rest...)
		at = 0
	}
	out := []string{args[0], command.Name}
	rest = slices.Concat(rest[:at], rest[at+1:])
	for len(command.Subcommands) > 0 {
		at := firstArgument(rest, allFlags(command.Subcommands))
		if at < 0 || named(command.Subcommands, rest[at]) == nil {
			break
		}
		command = named(command.Subcommands, rest[at])
		out = append(out, command.Name)
		rest = slices.Concat(rest[:at], rest[at+1:])
	}
	flags, arguments := split(rest, takesValue(command.Flags))
	return slices.Concat(out, flags, arguments)
}

func has(args []string, names ...string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(names, a) })
}

// firstArgument returns the index of what is neither a flag nor a flag's value, or -1.
func firstArgument(args []string, valued map[string]bool) int {
	for i := 0; i < len(args); i++ {
		switch name, isFlag := flagName(args[i]); {
		case args[i] == "--":
			return -1
		case !isFlag:
			return i
		case valued[name]:
			i++
		}
	}
	return -1
}

// split separates flags, with their values, from arguments. What follows "--" is an
// argument.
func split(args []string, valued map[string]bool) (flags, arguments []string) {
	for i := 0; i < len(args); i++ {
		switch name, isFlag := flagName(args[i]); {
		case args[i] == "--":
			return flags, slices.Concat([]string{"--"}, arguments, args[i+1:])
		case !isFlag:
			arguments = append(arguments, args[i])
		case valued[name] && i+1 < len(args):
			flags = append(flags, args[i], args[i+1])
			i++
		default:
			flags = append(flags, args[i])
		}
	}
	return flags, arguments
}

// flagName returns the name of a flag, empty when its value is part of it.
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

// allFlags returns which flags of any of the commands take a value.
func allFlags(commands []*cli.Command) map[string]bool {
	valued := map[string]bool{}
	for _, c := range commands {
		for name, takes := range takesValue(c.Flags) {
			valued[name] = valued[name] || takes
		}
		for name, takes := range allFlags(c.Subcommands) {
			valued[name] = valued[name] || takes
		}
	}
	return valued
}

func takesValue(flags []cli.Flag) map[string]bool {
	valued := map[string]bool{}
	for _, f := range flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			valued[name] = !isBool
		}
	}
	return valued
}

func named(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}
