// Command runonce-compose converts the files of docker compose to Kubernetes manifests for runonce.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/log"

	"github.com/runonce/runonce/manifests/compose"
)

// The exit codes are those of runonce.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	redirectLog(os.Stderr)
	os.Exit(start(os.Args[1:], os.Stdout, os.Stderr))
}

// redirectLog has the loader's own warnings look like ours. That version is obsolete is none: nobody uses it any more.
func redirectLog(w io.Writer) {
	log.L.Logger.SetOutput(io.Discard)
	log.L.Logger.AddHook(printer{w})
}

type printer struct{ w io.Writer }

func (p printer) Levels() []log.Level { return []log.Level{log.WarnLevel, log.ErrorLevel} }

func (p printer) Fire(e *log.Entry) error {
	if strings.Contains(e.Message, "`version` is obsolete") {
		return nil
	}
	_, err := fmt.Fprintln(p.w, "runonce-compose: warning:", e.Message)
	return err
}

// start runs the command and returns the exit code.
func start(args []string, stdout, stderr io.Writer) int {
	code, err := run(args, stdout, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "runonce-compose:", err)
	}
	return code
}

func run(args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) == 0 {
		return exitUsage, errors.New("no command given: see \"runonce-compose help\"")
	}
	switch args[0] {
	case "convert":
	case "help", "-h", "--help", "-help":
		_, err := io.WriteString(stdout, usage)
		return exitOK, err
	default:
		return exitUsage, fmt.Errorf("unknown command %q: see \"runonce-compose help\"", args[0])
	}
	o, err := parse(args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(stdout, usage)
		return exitOK, err
	case err != nil:
		return exitUsage, err
	}
	return o.convert(context.Background(), stdout, stderr)
}

// convert writes the manifests, and the problems to stderr.
func (o options) convert(ctx context.Context, stdout, stderr io.Writer) (int, error) {
	project, err := compose.Load(ctx, o.load)
	var bad compose.Problems
	if errors.As(err, &bad) {
		return exitUsage, report(stderr, bad, o.strict)
	}
	if err != nil {
		return exitUsage, err
	}
	files, problems := compose.Convert(project, o.conversion)
	err = report(stderr, problems, o.strict)
	switch {
	case err != nil:
		return exitUsage, err
	case len(files) == 0:
		return exitUsage, errors.New("the project has no services in the active profiles")
	case o.dir == "":
		err = compose.Print(stdout, files)
	default:
		var stale []string
		stale, err = compose.WriteDir(o.dir, files)
		for _, name := range stale {
			_, _ = fmt.Fprintf(stderr, "runonce-compose: warning: %s/%s is from an earlier conversion and no longer in the project: delete it\n", o.dir, name)
		}
	}
	if err != nil {
		return exitFailed, fmt.Errorf("writing the manifests: %w", err)
	}
	return exitOK, nil
}

// report prints the problems. Its error says that nothing can be written because of them.
func report(stderr io.Writer, problems compose.Problems, strict bool) error {
	for _, p := range problems {
		severity := "warning"
		if p.Fatal || strict {
			severity = "error"
		}
		_, _ = fmt.Fprintf(stderr, "%s: %s\n", severity, p)
	}
	fatal := len(problems.Fatal())
	if strict {
		fatal = len(problems)
	}
	switch fatal {
	case 0:
		return nil
	case 1:
		return errors.New("1 error: nothing was written")
	}
	return fmt.Errorf("%d errors: nothing was written", fatal)
}
