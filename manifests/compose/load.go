package compose

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
)

// LoadOptions say what to read, in the terms of docker compose.
type LoadOptions struct {
	Files       []string // "-" is standard input; none: those of COMPOSE_FILE, else compose.yaml of the directory or one above it
	EnvFiles    []string // none: .env of the project's directory
	Profiles    []string // none: those of COMPOSE_PROFILES
	Directory   string   // of the project; "": that of the first file
	ProjectName string   // "": as docker compose names it
}

// Project is a compose project that was read.
type Project struct {
	*types.Project

	sources  sources
	problems Problems // warnings
}

// Load reads the files of a project. Its error is Problems if it is about what is in them.
func Load(ctx context.Context, o LoadOptions) (*Project, error) {
	options, err := cli.NewProjectOptions(o.Files,
		cli.WithWorkingDirectory(o.Directory), cli.WithOsEnv, cli.WithEnvFiles(o.EnvFiles...), cli.WithDotEnv,
		cli.WithConfigFileEnv, cli.WithDefaultConfigPath,
		// The files may be in another directory, with a .env of its own.
		cli.WithEnvFiles(o.EnvFiles...), cli.WithDotEnv)
	if err != nil {
		return nil, err
	}
	if len(options.ConfigPaths) == 0 {
		return nil, fmt.Errorf("no compose file here: name one, as in \"runonce-compose convert compose.yaml\"")
	}
	dir, err := options.GetWorkingDir()
	if err != nil {
		return nil, err
	}
	details, err := options.ReadConfigFiles(ctx, dir, options)
	if err != nil {
		return nil, err
	}
	details.Environment = options.Environment
	p := &Project{sources: readSources(details.ConfigFiles, shown)}
	unset := map[string]bool{}
	p.Project, err = loader.LoadWithContext(ctx, *details, func(lo *loader.Options) {
		lo.Profiles = o.Profiles
		if len(o.Profiles) == 0 {
			lo.Profiles = strings.Split(options.Environment[consts.ComposeProfiles], ",")
		}
		if name := cmp.Or(o.ProjectName, options.Environment[consts.ComposeProjectName]); name != "" {
			lo.SetProjectName(name, true)
		} else {
			lo.SetProjectName(cmp.Or(loader.NormalizeProjectName(filepath.Base(dir)), "default"), false)
		}
		lo.Interpolate.Substitute = func(text string, values template.Mapping) (string, error) {
			return substitute(text, values, unset)
		}
	})
	if err != nil {
		return nil, p.locate(err)
	}
	for name := range unset {
		file, line := p.sources.lineOfVariable(name)
		p.problems = append(p.problems, Problem{File: file, Line: line, Message: fmt.Sprintf("the variable %s is not set: it is empty", name)})
	}
	return p, nil
}

// shown returns a path as messages show it: relative to the current directory if it is below that.
func shown(path string) string {
	if dir, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(relative) {
			return relative
		}
	}
	return path
}

// substitute replaces the variables of a text, and notes those that are not set and have no default.
func substitute(text string, values template.Mapping, unset map[string]bool) (string, error) {
	return template.SubstituteWithOptions(text, values, template.WithoutLogging, template.WithReplacementFunction(
		func(found string, values template.Mapping, c *template.Config) (string, error) {
			value, applied, err := template.DefaultReplacementAppliedFunc(found, values, c)
			if name := strings.Trim(found, "${}"); err == nil && !applied && plainName.MatchString(name) {
				unset[name] = true
			}
			return value, err
		}))
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// How the loader names what is wrong.
var (
	byPath    = regexp.MustCompile(`\b(services|volumes|networks|configs|secrets)(\.[\w-]+)+`)
	byElement = regexp.MustCompile(`\b(services|volumes|networks|configs|secrets)\[([^\]]+)\]\.(\w+)`)
	byService = regexp.MustCompile(`service "([^"]+)"`)
)

// locate turns an error of the loader into a problem with a line: of the place that it names, else of the service.
func (p *Project) locate(err error) Problems {
	text := strings.ReplaceAll(err.Error(), " false schema", ": unknown field")
	text = strings.TrimSuffix(text, ": invalid compose project")
	for _, s := range p.sources {
		text = strings.TrimPrefix(text, "validating "+s.path+": ")
		if strings.Contains(text, s.path) {
			return Problems{{Message: text, Fatal: true}}
		}
	}
	var at place
	if found := byPath.FindString(text); found != "" {
		at = strings.Split(found, ".")
	} else if m := byElement.FindStringSubmatch(text); m != nil {
		at = m[1:]
	} else if m := byService.FindStringSubmatch(text); m != nil {
		at = place{"services", m[1]}
	}
	file, line := p.sources.find(at)
	return Problems{{File: file, Line: line, Message: text, Fatal: true}}
}
