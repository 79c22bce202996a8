package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests/decode"
)

// dashed returns a flag as users write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// unknownFlag explains a flag that the command does not have. It never suggests one that starts, stops
// or removes more.
func unknownFlag(command *cli.Command, name string) error {
	text := "unknown flag " + dashed(name)
	takesPath := strings.Contains(command.ArgsUsage, "PATH")
	switch name {
	case "f", "filename", "file":
		if takesPath {
			return fmt.Errorf("%s: give the path without it, as in %q", text, command.HelpName+" PATH")
		}
	case "n":
		return errors.New(text + ": it is the namespace of pods, which this command does not need (--namespace is that of containerd)")
	case "A", "all-namespaces":
		return errors.New(text + ": all namespaces are always included")
	case "d", "detach":
		return fmt.Errorf("%s: pods keep running when %q has exited", text, command.HelpName)
	case "dry-run":
		return fmt.Errorf("%s: %s", text, dryRun(command))
	case "w", "watch":
		if command.Name == "ps" {
			return fmt.Errorf("%s: use %q", text, "watch runonce ps")
		}
	}
	var known []string
	for _, f := range command.Flags {
		known = append(known, names(f)...)
	}
	if near := decode.Nearest(name, known); len(near) > 1 && !doesMore(near) {
		return fmt.Errorf("%s (did you mean %s?)", text, dashed(near))
	}
	return errors.New(text)
}

// doingMore are the flags with which a command starts, stops or removes more than without.
var doingMore = []string{
	"all", "create-namespace", "images", "logs", "prune", "recreate", "recursive", "rerun", "rm", "run-cronjobs", "skip-invalid", "stop-pods",
}

// doesMore says whether the flag is one of them.
func doesMore(flag string) bool { return slices.Contains(doingMore, flag) }

// dryRun says how to see what the command would do.
func dryRun(command *cli.Command) string {
	switch command.Name {
	case "run", "watch":
		return `use "runonce plan PATH", which changes nothing`
	case "down":
		return `"runonce ps" lists the pods that run`
	}
	return `see "runonce plan --help"`
}

// mistake says what is wrong with a value of a flag, as far as it depends on its type; "" if nothing. Texts and
// lists can be anything.
func mistake(f cli.Flag, text string) (wrong string) {
	var err error
	switch f.(type) {
	case *cli.DurationFlag:
		_, err = time.ParseDuration(text)
		wrong = "must be a duration, for example 90s or 5m"
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			wrong = fmt.Sprintf("a duration needs a unit, for example %ss", text)
		}
	case *cli.IntFlag, *cli.Int64Flag:
		_, err = strconv.ParseInt(text, 0, 64)
		wrong = "must be a whole number"
	case *cli.Float64Flag:
		_, err = strconv.ParseFloat(text, 64)
		wrong = "must be a number"
	case *cli.BoolFlag:
		_, err = strconv.ParseBool(text)
		wrong = "takes no value, or true or false"
	}
	if err == nil {
		return ""
	}
	return wrong
}
