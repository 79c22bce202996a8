package cmd

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cgroup"
)

// The categories of flags in the help.
const (
	categoryEngine  = "Engine"
	categoryInput   = "Input"
	categoryRun     = "Run"
	categoryReport  = "Report"
	categoryNode    = "Node"
	categoryNetwork = "Network"
)

// engineFlags say where things live; every command takes them.
func engineFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "address", Category: categoryEngine, Usage: "socket of a containerd `DAEMON` (default: $CONTAINERD_ADDRESS, else the embedded one)"},
		&cli.StringFlag{Name: "root", Category: categoryEngine, Value: "/var/lib/runonce", Usage: "`DIR` for what outlives a reboot"},
		&cli.StringFlag{Name: "state", Category: categoryEngine, Value: "/run/runonce", Usage: "`DIR` for what does not"},
		&cli.StringFlag{Name: "log-dir", Category: categoryEngine, Value: "/var/log/pods", Usage: "`DIR` for the containers' logs"},
		&cli.StringFlag{Name: "namespace", Category: categoryEngine, Value: "runonce", Usage: "containerd `NAMESPACE` of images and containers"},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "of what goes to standard error: text or json"},
		&cli.StringFlag{Name: "log-level", Value: "warn", Usage: "debug, info, warn or error"},
	}
}

func outputFlag(formats string) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: categoryReport, Value: "table", Usage: formats}
}

// inputFlags say how manifests are read.
func inputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "recursive", Aliases: []string{"R"}, Category: categoryInput, Usage: "read the directories below, too"},
		&cli.StringFlag{Name: "sha256", Category: categoryInput, Usage: "hex `DIGEST` that the one URL among the paths must have"},
		&cli.BoolFlag{Name: "run-cronjobs", Category: categoryInput, Usage: "run the job of each CronJob, once"},
	}
}

// securityFlag refuses pods by what they may do on the machine.
func securityFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "pod-security", Category: categoryInput,
		Usage: "refuse pods that violate the `LEVEL` of the Pod Security Standards: privileged, baseline or restricted, as in baseline:v1.30 (default: privileged)",
	}
}

// inputOptions reads the flags of inputFlags and securityFlag.
func (p *program) inputOptions(c *cli.Context) manifests.Options {
	return manifests.Options{
		Recursive: c.Bool("recursive"), Stdin: p.io.Stdin, SHA256: c.String("sha256"), RunCronJobs: c.Bool("run-cronjobs"),
		NodeName: c.String("node-name"), PodSecurity: c.String("pod-security"),
	}
}

// planFlags say what of the input and of earlier runs counts.
func planFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "rerun", Category: categoryRun, Usage: "run pods of earlier runs that have ended again"},
		&cli.BoolFlag{Name: "prune", Category: categoryRun, Usage: "stop pods of earlier runs that are no longer in the input"},
		&cli.BoolFlag{Name: "skip-invalid", Category: categoryRun, Usage: "make an invalid manifest a row instead of the end of the run"},
	}
}

// withLogger sets up the logger before the action.
func (p *program) withLogger(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := p.setLogger(c); err != nil {
			return err
		}
		return action(c)
	}
}

// setLogger sets up the logger by the flags of engineFlags.
func (p *program) setLogger(c *cli.Context) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return usagef("--log-level %q: must be debug, info, warn or error", c.String("log-level"))
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.String("log-format") {
	case "text":
		p.log = slog.New(slog.NewTextHandler(p.io.Stderr, o))
	case "json":
		p.log, p.json = slog.New(slog.NewJSONHandler(p.io.Stderr, o)), true
	default:
		return usagef("--log-format %q: must be text or json", c.String("log-format"))
	}
	return nil
}

// formatOf returns the format of the output, which must be one of those that the command
// has.
func formatOf(c *cli.Context, formats ...string) (string, error) {
	f := c.String("output")
	if !slices.Contains(formats, f) {
		return "", usagef("--output %q: must be one of %s", f, strings.Join(formats, ", "))
	}
	return f, nil
}

// runOptions reads the flags that say how a plan is carried out.
func runOptions(c *cli.Context) (runonce.Options, error) {
	o := runonce.Options{
		Until:    runonce.Until(c.String("until")),
		Retry:    runonce.Backoff{Delay: c.Duration("retry-delay"), Factor: c.Float64("retry-factor"), Retries: c.Int("max-retries")},
		Timeout:  c.Duration("timeout"),
		Parallel: c.Int("parallel"),
		Settle:   c.Duration("settle"),
		Remove:   c.Bool("rm"),
	}
	if err := o.Validate(); err != nil {
		return o, usagef("%w", err)
	}
	if d := c.String("cgroup-driver"); d != cgroup.DriverCgroupfs && d != cgroup.DriverSystemd {
		return o, usagef("--cgroup-driver %q: must be %s or %s", d, cgroup.DriverCgroupfs, cgroup.DriverSystemd)
	}
	if n := c.Int64("pod-pids-limit"); n == 0 || n < -1 {
		return o, usagef("--pod-pids-limit %d: must be a number of processes, or -1 for no limit", n)
	}
	return o, nil
}

// style says how tables look: colors only for somebody who looks, and not against their
// wish (no-color.org).
func (p *program) style(format string) report.Style {
	return report.Style{Wide: format == "wide", Color: p.io.StdoutTerminal && p.io.Getenv("NO_COLOR") == ""}
}

// write writes a document in the format asked for.
func (p *program) write(format string, document any, table func(report.Style) error) error {
	var err error
	switch format {
	case "json":
		err = report.JSON(p.io.Stdout, document)
	case "yaml":
		err = report.YAML(p.io.Stdout, document)
	default:
		err = table(p.style(format))
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// list names a few paths.
func list(paths []string) string { return strings.Join(paths, ", ") }
