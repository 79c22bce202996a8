package cmdline

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests/decode"
)

// habits are commands of kubectl, podman, docker, compose and systemctl that users try, with the
// subcommand where it matters, and what to do instead. A hint never does more than what was meant.
var habits = map[string]string{
	"apply": runHabit, "create": runHabit, "up": runHabit, "start": runHabit, "play": runHabit, "kube play": runHabit, "compose up": runHabit,
	"kube down": downHabit, "compose down": downHabit, "kube": anyHabit, "compose": anyHabit,
	"delete": downHabit, "rm": downHabit, "remove": downHabit, "stop": downHabit, "kill": downHabit,
	"restart": `use "runonce down POD", and then "runonce run PATH"`,
	"reload":  changeHabit, "replace": changeHabit, "edit": changeHabit, "patch": changeHabit, "scale": changeHabit,
	"get": listHabit, "ls": listHabit, "list": listHabit, "status": listHabit, "pod ps": listHabit, "container": listHabit,
	"inspect": `use "runonce describe POD"`, "get events": eventsHabit,
	"stats": usageHabit,
	"diff":  `use "runonce plan PATH"`, "lint": `use "runonce validate PATH"`,
	"config": `use "runonce validate PATH" for manifests; "runonce help" says where settings are`,
	"log":    `use "runonce logs POD"`,
	"load":   importHabit, "import": importHabit, "pull": `use "runonce images pull PATH"`, "save": `use "runonce images bundle"`,
	"image": `use "runonce images list"`, "rmi": `use "runonce images rm IMAGE"`,
	"enable": unitHabit, "disable": unitHabit,
}

const (
	runHabit    = `use "runonce run PATH"`
	downHabit   = `use "runonce down PATH" or "runonce down POD", which stop and remove pods`
	anyHabit    = `use "runonce run PATH" or "runonce down PATH"`
	changeHabit = `change the manifest and use "runonce run PATH"`
	listHabit   = `use "runonce ps"`
	eventsHabit = `use "runonce events"`
	usageHabit  = `use "runonce top"`
	importHabit = `use "runonce images import PATH"`
	unitHabit   = `this is for systemd, as in "systemctl enable runonce.service"`
)

// CheckCommand refuses a first argument that is meant as a command of the program, as far as one can
// tell, and not as a path. A known habit, or a command with a typing error, is never a path: to run
// something is not what was asked for.
func (i Invocation) CheckCommand(program *cli.Command) error {
	name := i.unknown
	if !plainWord(name) {
		return nil
	}
	hint, certain := hintFor(program, i.arguments)
	_, err := os.Lstat(name)
	switch exists := err == nil; {
	case exists && !certain:
		return nil
	case exists:
		hint += " (the path of this name is ./" + name + ")"
	case hint == "":
		return fmt.Errorf("%q is neither a command nor an existing path; see %q", name, "runonce help")
	}
	return fmt.Errorf("unknown command %q: %s", name, hint)
}

// plainWord says whether a word may be meant as a command. Most paths have a dot, a slash or a digit.
func plainWord(word string) bool {
	return word != "" && word[0] != '-' && strings.Trim(strings.ToLower(word), "abcdefghijklmnopqrstuvwxyz-") == ""
}

// hintFor returns what to do instead of a command that does not exist, "" if nobody knows, and whether
// the words are certainly meant as a command.
func hintFor(program *cli.Command, words []string) (hint string, certain bool) {
	one, two := strings.ToLower(words[0]), ""
	if len(words) > 1 {
		two = one + " " + words[1]
	}
	if hint := cmp.Or(habits[two], habits[one]); hint != "" {
		return hint, true
	}
	var names []string
	for _, c := range program.Subcommands {
		if isTypo(one, c.Name) {
			return didYouMean(c.Name), true
		}
		if !slices.Contains(acting, c.Name) {
			names = append(names, c.Name)
		}
	}
	if near := decode.Nearest(one, names); near != "" {
		hint = didYouMean(near)
	}
	return hint, false
}

func didYouMean(command string) string { return fmt.Sprintf("did you mean %q?", "runonce "+command) }

// acting are the commands that start or stop pods. They are suggested only if the word is hardly
// anything else.
var acting = []string{"run", "watch", "down"}

// isTypo says whether the word is the command but for one typing error. Hardly anybody mistypes the first
// letter, and two letters are soon similar to anything.
func isTypo(word, command string) bool {
	return len(command) > 2 && word != "" && strings.IndexByte(command[:2], word[0]) >= 0 && decode.Distance(word, command) <= 1
}
