package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/runonce/runonce/manifests/compose"
)

const usage = `runonce-compose - convert files of docker compose to manifests for runonce

Usage:
   runonce-compose convert [flags] [FILE...]

   Without FILE, it takes compose.yaml or docker-compose.yml of this directory or of one above it, with their
   overrides. It prints the manifests, and a warning for everything that a pod cannot say. Exit code 2 says
   that nothing was written.

Flags:
   -f FILE                   read FILE, as if it were an argument; "-" is standard input; repeatable
   -o DIR                    write one file per service to DIR, instead of standard output
   -n, --namespace NS        namespace of the objects (default: that of the run)
   -p, --project-name NAME   name of the project
   --project-directory DIR   directory of relative paths (default: that of the first FILE)
   --env-file FILE           take variables from FILE (default: .env of the project); repeatable
   --profile NAME            also convert services of the profile NAME; repeatable
   --image SERVICE=IMAGE     use IMAGE for SERVICE, which has none or builds one; repeatable
   --strict                  warnings are errors
   -h, --help                show this help
`

// options are those of the command line.
type options struct {
	load       compose.LoadOptions
	conversion compose.Options
	dir        string
	strict     bool
}

// parse reads the arguments, with flags anywhere.
func parse(args []string) (options, error) {
	o := options{conversion: compose.Options{Images: map[string]string{}, Machine: os.DirFS("/")}}
	flags := flag.NewFlagSet("convert", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	for _, name := range []string{"f", "file"} {
		flags.Var((*words)(&o.load.Files), name, "")
	}
	flags.Var((*words)(&o.load.EnvFiles), "env-file", "")
	flags.Var((*words)(&o.load.Profiles), "profile", "")
	flags.Func("image", "", func(text string) error {
		service, image, ok := strings.Cut(text, "=")
		if !ok || service == "" || image == "" {
			return errors.New("must be SERVICE=IMAGE")
		}
		o.conversion.Images[service] = image
		return nil
	})
	for _, name := range []string{"o", "output-dir"} {
		flags.StringVar(&o.dir, name, "", "")
	}
	for _, name := range []string{"n", "namespace"} {
		flags.StringVar(&o.conversion.Namespace, name, "", "")
	}
	for _, name := range []string{"p", "project-name"} {
		flags.StringVar(&o.load.ProjectName, name, "", "")
	}
	flags.StringVar(&o.load.Directory, "project-directory", "", "")
	flags.BoolVar(&o.strict, "strict", false, "")
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return o, withHint(err)
		}
		if args = flags.Args(); len(args) > 0 {
			o.load.Files = append(o.load.Files, args[0])
			args = args[1:]
		}
	}
	return o, nil
}

func withHint(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return fmt.Errorf("%w: see \"runonce-compose help\"", err)
}

// words is a flag that may be repeated.
type words []string

func (w *words) String() string { return strings.Join(*w, ",") }

func (w *words) Set(text string) error {
	*w = append(*w, text)
	return nil
}
