package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/image"
)

// The categories of flags in the help.
const (
	categoryEngine  = "Engine"
	categoryInput   = "Input"
	categoryRun     = "Run"
	categoryReport  = "Report"
	categoryNode    = "Node"
	categoryNetwork = "Network"
	categoryCluster = "Cluster"
	categoryImages  = "Images"
)

// retryJitter keeps many machines from asking a registry again at the same time.
const retryJitter = 0.1

// defaultPullTimeout is that of containerd for the kubelet (image_pull_progress_timeout).
const defaultPullTimeout = 5 * time.Minute

// engineFlags select the engine and its directories, and the log messages.
func engineFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "address", Category: categoryEngine, Usage: "use containerd at `SOCKET`", DefaultText: "$CONTAINERD_ADDRESS, else embedded"},
		&cli.StringFlag{Name: "root", Category: categoryEngine, Value: backend.DefaultRoot, Usage: "keep persistent data in `DIR`"},
		&cli.StringFlag{Name: "state", Category: categoryEngine, Value: "/run/runonce", Usage: "keep data that a reboot may delete in `DIR`"},
		&cli.StringFlag{Name: "log-dir", Category: categoryEngine, Value: "/var/log/pods", Usage: "write container logs to `DIR`"},
		&cli.StringFlag{Name: "namespace", Category: categoryEngine, Value: "runonce", Usage: "containerd `NAMESPACE`, not that of pods"},
	}, logFlags()...)
}

// logFlags are those of every command that works: they select the configuration and the log messages.
func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: cmdline.ConfigFlag, Usage: "read the configuration `FILE`", DefaultText: cmdline.DefaultConfig},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT` of log messages: text, json or journal"},
		&cli.StringFlag{Name: "log-level", Value: "warn", Usage: "lowest `LEVEL` to log: debug, info, warn or error"},
	}
}

// registryFlags say how images are pulled.
func registryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "authfile", Category: categoryImages, Usage: "registry credentials `FILE`", DefaultText: "docker's, podman's"},
		&cli.StringFlag{Name: "image-credential-provider-config", Category: categoryImages, Usage: "credential provider plugins `FILE`"},
		&cli.StringFlag{Name: "image-credential-provider-bin-dir", Category: categoryImages, Usage: "`DIR` of those plugins"},
		&cli.StringFlag{Name: "hosts-dir", Category: categoryImages, Usage: "hosts.toml `DIR`", DefaultText: "/etc/containerd/certs.d"},
		&cli.DurationFlag{Name: "pull-timeout", Category: categoryImages, Value: defaultPullTimeout, Usage: "retry a pull that stalls for `DURATION`"},
	}
}

// registryOptions reads registryFlags.
func (p *program) registryOptions(c *cli.Context, o *containerd.Options) {
	o.CertsDir, o.PullTimeout, o.Credentials = c.String("hosts-dir"), c.Duration("pull-timeout"), credentialOptions(c)
	o.Credentials.Getenv = p.io.Getenv
}

func credentialOptions(c *cli.Context) image.KeychainOptions {
	return image.KeychainOptions{
		AuthFile: c.String("authfile"), ProviderConfig: c.String("image-credential-provider-config"),
		ProviderDir: c.String("image-credential-provider-bin-dir"),
	}
}

// quietFlag is for commands that show progress.
func quietFlag() cli.Flag { return boolFlag("", "print no progress to standard error", "quiet", "q") }

// outputFlag selects one of the formats, of which the first is the default.
func outputFlag(formats ...string) cli.Flag {
	last := len(formats) - 1
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Category: categoryReport, Value: formats[0],
		Usage: "`FORMAT`: " + strings.Join(formats[:last], ", ") + " or " + formats[last],
		Action: func(_ *cli.Context, format string) error {
			if !slices.Contains(formats, format) {
				return usagef("--output %q: must be one of %s", format, strings.Join(formats, ", "))
			}
			return nil
		},
	}
}

// inputFlags say how manifests are read.
func inputFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag(categoryInput, "read subdirectories as well", "recursive", "R"),
		&cli.StringFlag{Name: "sha256", Category: categoryInput, Usage: "require this `DIGEST` of the one URL among the paths"},
		boolFlag(categoryInput, "run the Job of each CronJob once", "run-cronjobs"),
		boolFlag(categoryInput, "replace ${NAME} in manifests by environment variables", "substitute"),
		newPathsFlag(categoryInput, "env-file", "replace ${NAME} in manifests by the variables of `FILE`", ""),
		boolFlag(categoryInput, "refuse images that are not given by their digest", "require-digest"),
	}
}

// securityFlag refuses pods by the Pod Security Standards.
func securityFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "pod-security", Category: categoryInput,
		Usage: "enforce Pod Security `LEVEL`: privileged, baseline or restricted[:VERSION]",
	}
}

// planFlags say how the input and earlier runs are planned.
func planFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag(categoryRun, "run pods again that have succeeded in an earlier run", "rerun"),
		boolFlag(categoryRun, "stop pods that came from the same paths and are no longer there", "prune"),
		boolFlag(categoryRun, "report invalid manifests and run the others", "skip-invalid"),
	}
}

// boolFlag returns a flag whose help does not mention that it is off by default.
func boolFlag(category, usage, name string, aliases ...string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Aliases: aliases, Category: category, Usage: usage, DisableDefaultText: true}
}

// hidden returns the flag, left out of the help.
func hidden(f cli.Flag) cli.Flag {
	switch f := f.(type) {
	case *cli.BoolFlag:
		f.Hidden = true
	case *cli.StringFlag:
		f.Hidden = true
	case *cli.GenericFlag:
		f.Hidden = true
	}
	return f
}

// list is the value of a flag that may be repeated.
type list struct {
	values []string
	commas bool // separate values, too
}

// Set adds a value.
func (l *list) Set(text string) error {
	if !l.commas {
		l.values = append(l.values, text)
		return nil
	}
	for value := range strings.SplitSeq(text, ",") {
		l.values = append(l.values, strings.TrimSpace(value))
	}
	return nil
}

func (l *list) String() string { return strings.Join(l.values, ", ") }

// listOf returns the values of a flag that may be repeated, none if the command does not have it.
func listOf(c *cli.Context, name string) []string {
	if l, ok := c.Generic(name).(*list); ok {
		return l.values
	}
	return nil
}

func newListFlag(category, name, usage, defaults string) cli.Flag {
	return &cli.GenericFlag{Name: name, Category: category, Value: &list{commas: true}, Usage: usage + "; repeatable", DefaultText: defaults}
}

// newPathsFlag returns a flag for paths, which may have commas.
func newPathsFlag(category, name, usage, defaults string) cli.Flag {
	return &cli.GenericFlag{Name: name, Category: category, Value: &list{}, Usage: usage + "; repeatable", DefaultText: defaults}
}

// inputOptions reads the flags of inputFlags and securityFlag.
func (p *program) inputOptions(c *cli.Context) manifests.Options {
	o := manifests.Options{
		Recursive: c.Bool("recursive"), Stdin: p.io.Stdin, SHA256: c.String("sha256"), RunCronJobs: c.Bool("run-cronjobs"),
		NodeName: c.String("node-name"), PodSecurity: c.String("pod-security"),
		Variables: p.variables,
		// A lock gives every image a digest.
		RequireDigest: c.Bool("require-digest") && c.String("lock") == "", Places: c.Bool("offline") || c.String("lock") != "",
	}
	if p.cluster != nil {
		o.Cluster, o.Namespace = true, p.cluster.Namespace
	}
	return o
}

// loadVariables reads what is substituted in manifests, if anything.
func (p *program) loadVariables(c *cli.Context) error {
	files, process := listOf(c, "env-file"), c.Bool("substitute")
	if len(files) == 0 && !process {
		return nil
	}
	var err error
	if p.variables, err = manifests.Variables(p.environ(), files, process); err != nil {
		return badInput(err)
	}
	return nil
}

// paths returns the arguments of a command that reads manifests.
func paths(c *cli.Context) ([]string, error) {
	if c.Args().Len() == 0 {
		return nil, usagef("no PATH given: name a directory of pod manifests, a file, or - for standard input")
	}
	return c.Args().Slice(), nil
}

// setUp sets up the log messages and the display as the flags say, and checks and reads what many
// commands use.
func (p *program) setUp(c *cli.Context) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return usagef("--log-level %q: must be debug, info, warn or error", c.String("log-level"))
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.String("log-format") {
	case "text":
		p.log = slog.New(newTextHandler(p.io.Stderr, o))
	case "json":
		p.log, p.structured = slog.New(slog.NewJSONHandler(p.io.Stderr, o)), true
	case "journal":
		h, err := newJournalHandler(p.io.Journal, o)
		if err != nil {
			return usagef("--log-format journal: %w", err)
		}
		p.log, p.structured = slog.New(h), true
	default:
		return usagef("--log-format %q: must be text, json or journal", c.String("log-format"))
	}
	for _, text := range p.settings.Warnings {
		p.log.Warn(text)
	}
	p.configureDisplay(c)
	return errors.Join(checkValues(c), p.loadVariables(c), p.loadCluster(c))
}

// configureDisplay turns the display on, unless --quiet is set. With --log-format json or
// journal, and at the log levels info and debug, events are log messages instead of lines.
func (p *program) configureDisplay(c *cli.Context) {
	var log *slog.Logger
	if p.structured || p.log.Enabled(c.Context, slog.LevelInfo) {
		log = p.log
	}
	mode := progress.Lines
	switch {
	case c.Bool("quiet"):
		mode = progress.Off
	case p.io.StderrTerminal && !p.dumbTerminal() && !p.structured:
		mode = progress.Bars
	}
	p.display.Configure(mode, log, p.structured)
}

// checkValues refuses values that no command can use.
func checkValues(c *cli.Context) error {
	if err := checkImageFlags(c); err != nil {
		return err
	}
	if err := backoff(c).Validate(); c.IsSet("retry-factor") && err != nil {
		return badInput(err)
	}
	if sum := c.String("sha256"); sum != "" && !sha256Digest.MatchString(sum) {
		return usagef("--sha256 %q: must be 64 hex digits", sum)
	}
	// Those by default need not exist.
	for _, flag := range []string{"cni-conf-dir", "hosts-dir"} {
		dir := c.String(flag)
		if info, err := os.Stat(dir); c.IsSet(flag) && dir != defaultCNIConfDir && (err != nil || !info.IsDir()) {
			return usagef("--%s %q: must be an existing directory", flag, dir)
		}
	}
	return checkNotNegative(c)
}

func checkNotNegative(c *cli.Context) error {
	var negative []error
	for _, f := range c.Command.Flags {
		switch f := f.(type) {
		case *cli.DurationFlag:
			if d := c.Duration(f.Name); d < 0 {
				negative = append(negative, fmt.Errorf("--%s %s: must not be negative", f.Name, d))
			}
		case *cli.IntFlag:
			if n := c.Int(f.Name); n < 0 {
				negative = append(negative, fmt.Errorf("--%s %d: must not be negative", f.Name, n))
			}
		}
	}
	if len(negative) > 0 {
		return badInput(errors.Join(negative...))
	}
	return nil
}

var sha256Digest = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)

// runOptions reads the flags that say how a plan is carried out.
func runOptions(c *cli.Context) (runonce.Options, error) {
	o := runonce.Options{
		Until:    runonce.Until(c.String("until")),
		Retry:    backoff(c),
		Timeout:  c.Duration("timeout"),
		Parallel: c.Int("parallel"),
		Settle:   c.Duration("settle"),
		FailFast: c.Bool("fail-fast"),
		Remove:   c.Bool("rm"),
	}
	if c.Command.Name != "watch" || c.IsSet("max-restarts") {
		o.MaxRestarts = new(c.Int("max-restarts"))
	}
	if err := o.Validate(); err != nil {
		return o, badInput(err)
	}
	if d := c.String("cgroup-driver"); d != cgroup.DriverCgroupfs && d != cgroup.DriverSystemd {
		return o, usagef("--cgroup-driver %q: must be %s or %s", d, cgroup.DriverCgroupfs, cgroup.DriverSystemd)
	}
	if n := c.Int64("pod-pids-limit"); n == 0 || n < -1 {
		return o, usagef("--pod-pids-limit %d: must be a number of processes, or -1 for no limit", n)
	}
	return o, nil
}
