package cmdline

import (
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests/decode"
)

// habits are the commands of kubectl and its like that users try, and what to do instead.
var habits = map[string]string{
	"apply": `use "runonce run PATH"`, "create": `use "runonce run PATH"`, "up": `use "runonce run PATH"`,
	"start": `use "runonce run PATH"`, "play": `use "runonce run PATH"`, "restart": `use "runonce run --rerun PATH"`,
	"delete": `use "runonce down PATH" or "runonce down POD"`, "rm": `use "runonce down PATH" or "runonce down POD"`,
	"stop": `use "runonce down PATH" or "runonce down POD"`, "kill": `use "runonce down PATH" or "runonce down POD"`,
	"get": `use "runonce ps"`, "ls": `use "runonce ps"`, "list": `use "runonce ps"`,
	"describe": `use "runonce ps -o wide" or "runonce run -o wide PATH"`,
	"diff":     `use "runonce plan PATH"`, "lint": `use "runonce validate PATH"`,
	"load": `use "runonce images import PATH"`, "pull": `use "runonce images pull PATH"`,
	"exec": attachHabit, "attach": attachHabit,
}

const attachHabit = `runonce cannot enter containers; "runonce logs POD" prints their output`

// plainWord is what a command looks like; paths mostly have a dot or a slash.
var plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

// Check returns what is wrong with the arguments, of which the first is the program's name, if the
// command line library would misunderstand it.
func Check(args []string, commands []*cli.Command) error {
	if len(args) < 2 {
		return nil
	}
	if err := checkCommand(args[1:], commands); err != nil {
		return err
	}
	return checkRepeated(Reorder(args, commands)[1:], commands)
}

// checkCommand refuses a first argument that is meant as a command, as far as one can tell, and
// not as a path; and a last flag without its value.
func checkCommand(args []string, commands []*cli.Command) error {
	takesValue := valueFlags(commands)
	if _, lacking := parse(args, takesValue); lacking != "" {
		return fmt.Errorf("%s: needs a value", dashed(lacking))
	}
	at := firstArgument(args, takesValue)
	if at < 0 || !plainWord.MatchString(args[at]) || findCommand(commands, args[at]) != nil {
		return nil
	}
	name := args[at]
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	if hint := habits[name]; hint != "" {
		return fmt.Errorf("unknown command %q: %s", name, hint)
	}
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	if near := decode.Nearest(name, names); near != "" {
		return fmt.Errorf("unknown command %q (did you mean %q?)", name, "runonce "+near)
	}
	return fmt.Errorf("%q is neither a command nor an existing path; see %q", name, "runonce help")
}

// checkRepeated refuses a flag that takes one value and is given twice. The arguments are in the
// order of reorder.
func checkRepeated(args []string, commands []*cli.Command) error {
	path, rest := cutCommands(args, commands)
	if len(path) == 0 {
		return nil
	}
	last := path[len(path)-1:]
	words, _ := parse(rest, valueFlags(last))
	given := map[string]bool{}
	for _, w := range words {
		f := findFlag(last[0], w.flag)
		if _, isBool := f.(*cli.BoolFlag); w.kind != flag || f == nil || isBool || repeatable(f) {
			continue
		}
		name := f.Names()[0]
		if given[name] {
			return fmt.Errorf("%s is given twice, and takes one value", dashed(name))
		}
		given[name] = true
	}
	return nil
}

// dashed returns a flag as users write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// The messages of package flag.
var (
	undefinedFlag = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	noValue       = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
	invalidValue  = regexp.MustCompile(`(?s)^invalid (?:boolean )?value "(.*)" for (?:flag )?-(\S+): (.*)$`)
)

// FlagProblem explains an error of package flag.
func FlagProblem(command *cli.Command, err error) string {
	text := err.Error()
	if m := undefinedFlag.FindStringSubmatch(text); m != nil {
		return unknownFlag(command, m[1])
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		return dashed(m[1]) + ": needs a value"
	}
	if m := invalidValue.FindStringSubmatch(text); m != nil {
		// The value is quoted by package flag already.
		return fmt.Sprintf("%s \"%s\": %s", dashed(m[2]), m[1], wantedValue(findFlag(command, m[2]), m[1], m[3]))
	}
	return text
}

// unknownFlag explains a flag that the command does not have.
func unknownFlag(command *cli.Command, name string) string {
	text := "unknown flag " + dashed(name)
	switch name {
	case "f", "filename", "file":
		return fmt.Sprintf("%s: give the path without it, as in %q", text, "runonce "+command.Name+" PATH")
	case "n":
		return text + ": a manifest says its namespace, and [NAMESPACE/]POD names a pod (--namespace is that of containerd)"
	case "A", "all-namespaces":
		return text + ": all namespaces are always included"
	}
	var names []string
	for _, f := range command.Flags {
		names = append(names, f.Names()...)
	}
	if near := decode.Nearest(name, names); len(near) > 1 {
		return fmt.Sprintf("%s (did you mean %s?)", text, dashed(near))
	}
	return text
}

// wantedValue says what a value of a flag must be, which package flag may not.
func wantedValue(f cli.Flag, value, problem string) string {
	switch f.(type) {
	case *cli.DurationFlag:
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return fmt.Sprintf("a duration needs a unit, for example %ss", value)
		}
		return "must be a duration, for example 90s or 5m"
	case *cli.IntFlag, *cli.Int64Flag:
		return "must be a whole number"
	case *cli.Float64Flag:
		return "must be a number"
	case *cli.BoolFlag:
		return "takes no value, or true or false"
	}
	return problem
}
