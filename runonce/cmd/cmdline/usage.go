package cmdline

import (
	"errors"
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

// CheckCommand refuses a first argument that is meant as a command of the program, as far as one can
// tell, and not as a path.
func (i Invocation) CheckCommand(program *cli.Command) error {
	name := i.unknown
	if !plainWord.MatchString(name) {
		return nil
	}
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	if hint := habits[name]; hint != "" {
		return fmt.Errorf("unknown command %q: %s", name, hint)
	}
	var names []string
	for _, c := range program.Subcommands {
		names = append(names, c.Name)
	}
	if near := decode.Nearest(name, names); near != "" {
		return fmt.Errorf("unknown command %q (did you mean %q?)", name, "runonce "+near)
	}
	return fmt.Errorf("%q is neither a command nor an existing path; see %q", name, "runonce help")
}

// dashed returns a flag as users write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// unknownFlag explains a flag that the command does not have.
func unknownFlag(command *cli.Command, name string) error {
	text := "unknown flag " + dashed(name)
	switch name {
	case "f", "filename", "file":
		return fmt.Errorf("%s: give the path without it, as in %q", text, "runonce "+command.Name+" PATH")
	case "n":
		return errors.New(text + ": a manifest says its namespace, and [NAMESPACE/]POD names a pod (--namespace is that of containerd)")
	case "A", "all-namespaces":
		return errors.New(text + ": all namespaces are always included")
	}
	var known []string
	for _, f := range command.Flags {
		known = append(known, names(f)...)
	}
	if near := decode.Nearest(name, known); len(near) > 1 {
		return fmt.Errorf("%s (did you mean %s?)", text, dashed(near))
	}
	return errors.New(text)
}

// wantedValue says what a value of a flag must be, which the problem of package flag may not.
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
