package cmdline

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests/decode"
)

const (
	// DefaultConfig is the configuration file that need not exist.
	DefaultConfig = "/etc/runonce/config.yaml"
	// DefaultConfigs are those that change it.
	DefaultConfigs = "/etc/runonce/config.d/*.yaml"
	// ConfigFlag is the flag that names another one.
	ConfigFlag = "config"

	variablePrefix = "RUNONCE_"
)

// Variable returns the environment variable of a flag.
func Variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Settings are the values of flags from the environment and the configuration file. The zero value
// has none.
type Settings struct {
	// Warnings are about variables that set no flag.
	Warnings []string

	flags  map[string][]cli.Flag // of all commands, by name
	values map[string]setting
}

// setting is the value of a flag, and where it is from.
type setting struct {
	texts []string // several for a list
	from  string
}

// Sources are where settings come from.
type Sources struct {
	// Environ has the environment variables as KEY=VALUE.
	Environ []string
	// Machine is the root file system, of which DefaultConfig and DefaultConfigs are read.
	Machine fs.FS
	// Config is the file of the command line, which is then the only one, "" for none.
	Config string
}

// Load returns the settings for a command, which is a section of the configuration files. Both
// sources may have those of any command. An error about a file is of type decode.Diagnostics.
func Load(from Sources, command string, commands []*cli.Command) (*Settings, error) {
	s := &Settings{flags: map[string][]cli.Flag{}, values: map[string]setting{}}
	s.addFlags(commands)
	variables := map[string]setting{}
	config, err := s.environ(from.Environ, variables)
	if err != nil {
		return s, err
	}
	if from.Config != "" {
		config = from.Config
	}
	files, err := readConfigs(config, from.Machine)
	err = cmp.Or(err, s.files(files, command, commands).Err())
	maps.Copy(s.values, variables)
	return s, err
}

// addFlags collects the flags that can be set. What --all removes must be said by the command line.
func (s *Settings) addFlags(commands []*cli.Command) {
	for _, c := range commands {
		for _, f := range c.Flags {
			if name := FlagName(f); name != ConfigFlag && name != "help" && name != "all" {
				s.flags[name] = append(s.flags[name], f)
			}
		}
		s.addFlags(c.Subcommands)
	}
}

// environ reads the variables, and returns the configuration file that one of them names. An empty
// variable counts as not set.
func (s *Settings) environ(environ []string, values map[string]setting) (config string, err error) {
	variables := map[string]string{Variable(ConfigFlag): ConfigFlag}
	for name := range s.flags {
		variables[Variable(name)] = name
	}
	for _, e := range slices.Sorted(slices.Values(environ)) {
		variable, text, _ := strings.Cut(e, "=")
		name, known := variables[variable]
		switch {
		case !strings.HasPrefix(variable, variablePrefix) || text == "":
		case name == ConfigFlag:
			config = text
		case known:
			if message := mistake(s.flags[name][0], text); message != "" {
				return "", fmt.Errorf("%s: %q: %s", variable, text, message)
			}
			values[name] = setting{[]string{text}, variable}
		default:
			s.Warnings = append(s.Warnings, unknownVariable(variable, slices.Sorted(maps.Keys(variables))))
		}
	}
	return config, nil
}

func unknownVariable(variable string, known []string) string {
	text := variable + " is set in the environment, but there is no such flag"
	more := func(near string) bool {
		return slices.ContainsFunc(doingMore, func(flag string) bool { return near == Variable(flag) })
	}
	if near := decode.Nearest(variable, known); near != "" && !more(near) {
		text += " (did you mean " + near + "?)"
	}
	return text
}

// files reads the keys of the configuration files. Of each key, the last value counts; that of a
// section, in whichever file, comes before the one for all commands.
func (s *Settings) files(files []decode.Document, command string, commands []*cli.Command) (problems decode.Diagnostics) {
	section := map[string]setting{}
	for _, d := range files {
		problems = append(problems, s.file(d, command, commands, section)...)
	}
	maps.Copy(s.values, section)
	return problems
}

// file reads the keys of one configuration file: flags, and sections with the flags of one command.
func (s *Settings) file(d decode.Document, command string, commands []*cli.Command, section map[string]setting) decode.Diagnostics {
	var keys map[string]any
	problems := decode.Into(d, &keys)
	for key, value := range keys {
		entries, isMap := value.(map[string]any)
		if c := findCommand(commands, key); c != nil && (isMap || value == nil && s.flags[key] == nil) {
			values := map[string]setting{}
			own := &Settings{flags: map[string][]cli.Flag{}}
			own.addFlags([]*cli.Command{c})
			for name, value := range entries {
				problems = append(problems, own.key(d, key+"."+name, name, value, values)...)
			}
			if key == command {
				maps.Copy(section, values)
			}
			continue
		}
		problems = append(problems, s.key(d, key, key, value, s.values)...)
	}
	return problems.Sort()
}

// key reads the value of a flag in the configuration file.
func (s *Settings) key(d decode.Document, at, name string, value any, values map[string]setting) decode.Diagnostics {
	flags := s.flags[name]
	if len(flags) == 0 {
		hint := ""
		if known := slices.Sorted(maps.Keys(s.flags)); !doesMore(decode.Nearest(name, known)) {
			hint = decode.DidYouMean(name, known)
		}
		return decode.Diagnostics{d.Error(at, "unknown key", hint)}
	}
	texts, message := scalars(value, flags[0])
	for i, text := range texts {
		if wrong := mistake(flags[0], text); message == "" && wrong != "" {
			message = fmt.Sprintf("%q: %s", text, wrong)
		}
		if slices.ContainsFunc(flags, takesFile) {
			texts[i] = beside(d.File, text)
		}
	}
	if message != "" {
		return decode.Diagnostics{d.Error(at, message, "")}
	}
	values[name] = setting{texts, fmt.Sprintf("%s:%d", d.File, d.Line(at))}
	return nil
}

// scalars returns a value, or the values of a list, as texts.
func scalars(value any, f cli.Flag) (texts []string, message string) {
	list, isList := value.([]any)
	switch {
	case isList && !repeatable(f):
		return nil, "takes one value, not a list"
	case !isList:
		list = []any{value}
	}
	for _, v := range list {
		text, isString := v.(string)
		switch v.(type) {
		case nil:
			return nil, "has no value"
		case map[string]any, []any:
			return nil, "must be a value, not a map or list"
		}
		if !isString {
			text = fmt.Sprint(v)
		}
		if !isString && isText(f) {
			return nil, text + " is not text: quote it"
		}
		texts = append(texts, text)
	}
	return texts, ""
}

// repeatable says whether the flag may be given several times.
func repeatable(f cli.Flag) bool {
	_, ok := f.(*cli.GenericFlag)
	return ok
}

// isText says whether the values of the flag are texts, which must not be numbers in YAML.
func isText(f cli.Flag) bool {
	_, isString := f.(*cli.StringFlag)
	return isString || repeatable(f)
}

// beside returns a path of the file relative to the directory of the file. What is no path, such as
// a URL, stays.
func beside(file, text string) string {
	if text == "" || text == "-" || text == "in-cluster" || path.IsAbs(text) || strings.Contains(text, "://") {
		return text
	}
	return filepath.Join(filepath.Dir(file), text)
}

// Apply gives the flags of the command that are not on the command line their values.
func (s *Settings) Apply(i Invocation) error {
	for _, f := range i.Command.Flags {
		name := FlagName(f)
		value, ok := s.values[name]
		if !ok {
			continue
		}
		if i.given[name] {
			delete(s.values, name)
			continue
		}
		for _, text := range value.texts {
			if err := i.values.Set(name, text); err != nil {
				return fmt.Errorf("%s: %w", value.from, err)
			}
		}
	}
	return nil
}

// flagName is how an error about a flag begins.
var flagName = regexp.MustCompile(`^--([a-z0-9-]+)`)

// Explain returns where the value of the flag is from that an error is about, as a prefix of the
// error; "" for the command line.
func (s *Settings) Explain(err error) string {
	if m := flagName.FindStringSubmatch(err.Error()); m != nil && s.values[m[1]].from != "" {
		return s.values[m[1]].from + ": "
	}
	return ""
}

// SetDefaults makes the values of texts the defaults of the flags, for completions.
func (s *Settings) SetDefaults() {
	for name, value := range s.values {
		for _, f := range s.flags[name] {
			if f, ok := f.(*cli.StringFlag); ok && len(value.texts) > 0 {
				f.Value = value.texts[0]
			}
		}
	}
}
