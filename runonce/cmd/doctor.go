package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/doctor"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/image"
)

// registryTimeout limits how long doctor waits for a registry.
const registryTimeout = 10 * time.Second

// examination is the document that doctor writes.
type examination struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"` // Examination
	ExitCode   int            `json:"exitCode"`
	Version    string         `json:"version"` // of this program
	Checks     []doctor.Check `json:"checks"`
	report.Failure
}

// doctorCommand is "doctor".
type doctorCommand struct {
	*program
	outputFlags
	manifestFlags
	runtimeFlags
	connectFlags
	engineFlags
	registryFlags
}

func (p *program) doctorCommand() *cli.Command {
	c := &doctorCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{
		Name: "doctor", Usage: "check whether this machine can run pods", ArgsUsage: "[PATH...]",
		Description: "It creates and deletes a container, and leaves nothing. With PATHs, it asks the registries of\n" +
			"their images as well. Exit code 4 says that a run could not work.",
	}, c, &c.outputFlags, &c.manifestFlags, &c.registryFlags, &c.runtimeFlags, &c.connectFlags, &c.engineFlags)
}

func (c *doctorCommand) run(ctx context.Context, args []string) error {
	o, err := c.input(c.console)
	if err != nil {
		return err
	}
	set := &manifests.Set{}
	if len(args) > 0 {
		if set, err = c.read(ctx, reading{paths: args, options: o}); err != nil {
			return err
		}
	}
	document := newExamination()
	if document.Checks, err = c.examine(ctx, set); err != nil {
		return err
	}
	if slices.ContainsFunc(document.Checks, func(check doctor.Check) bool { return check.Status == doctor.Failed }) {
		document.ExitCode = report.ExitEngine
	}
	err = c.write(c.output, document, func(report.Style) error { return c.table(document.Checks) })
	if err != nil {
		return err
	}
	return exitWith(document.ExitCode, nil)
}

// examine makes all checks.
func (c *doctorCommand) examine(ctx context.Context, set *manifests.Set) ([]doctor.Check, error) {
	o := c.engine(c.console)
	c.runtimeFlags.setTo(&o)
	c.connectFlags.setTo(&o)
	server.RedirectLog(ctx, c.log)
	end := c.display.Wait("trying the machine")
	x, err := c.io.Examine(ctx, o)
	end()
	process := doctor.Process(c.io.Machine, err == nil)
	checks := []doctor.Check{process, doctor.Kernel(c.io.Machine)}
	if process.Status == doctor.Failed {
		checks = append(checks, doctor.Untried(process)...)
	} else {
		checks = append(checks, doctor.Tried(x, o.Address, needNetwork(set.Pods))...)
	}
	node, err := c.detect(admit.NodeOptions{}, c.root, nil)
	if err != nil {
		return nil, err
	}
	checks = append(checks, doctor.Node(node)...)
	for _, d := range []struct{ flag, dir string }{{"root", c.root}, {"state", c.state}, {"log-dir", c.logDir}} {
		size, err := c.filesystem(d.dir)
		checks = append(checks, doctor.Directory(d.flag, d.dir, size, err))
	}
	file, text, err := backend.ResolvConf(c.io.Machine)
	built, _ := time.Parse(time.RFC3339, ownVersions().Date) // else the zero time
	checks = append(checks, doctor.Clock(time.Now(), built), doctor.Names(file, text, err))
	return append(checks, c.askRegistries(ctx, set)...), context.Cause(ctx)
}

// needNetwork says whether pods may need a network of their own, also if none is known.
func needNetwork(pods []*v1.Pod) bool {
	return len(pods) == 0 || slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return !pod.Spec.HostNetwork })
}

// askRegistries checks the images that may be pulled.
func (c *doctorCommand) askRegistries(ctx context.Context, set *manifests.Set) []doctor.Check {
	var o backend.Options
	c.registryFlags.setTo(&o.Options, c.io.Getenv)
	from := o.Registries()
	all := usesOf(set.Pods)
	var refs []string
	for ref, uses := range all {
		if slices.ContainsFunc(uses, func(u use) bool { return u.image.Policy != v1.PullNever }) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	checks := make([]doctor.Check, len(refs))
	_ = inParallel(refs, defaultPulls, func(i int, ref string) error {
		always := slices.ContainsFunc(all[ref], func(u use) bool { return u.image.Policy == v1.PullAlways })
		digest, err := askFor(ctx, from, set, ref, all[ref])
		if err != nil {
			err = failure.WithAdvice(err)
		}
		checks[i] = doctor.Image(ref, digest, err, always)
		return nil
	})
	return checks
}

// askFor returns the digest of an image, with the credentials of one of its uses.
func askFor(ctx context.Context, from images.Registries, set *manifests.Set, ref string, uses []use) (digest string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, registryTimeout, fmt.Errorf("the registry did not answer within %s", registryTimeout))
	defer cancel()
	err = withUses(ctx, runonce.Backoff{}, uses, func(u use) error {
		credentials, err := image.PodCredentials(set, u.pod, ref)
		if err != nil {
			return failure.Permanentf("%w", err)
		}
		digest, err = from.Digest(ctx, ref, credentials)
		return err
	})
	return digest, err
}

// table prints one line for each check, and below it what to do.
func (c *doctorCommand) table(checks []doctor.Check) error {
	rows := make([][]string, 0, len(checks))
	for _, check := range checks {
		text := check.Message
		if check.Advice != "" {
			text += ": " + check.Advice
		}
		rows = append(rows, []string{check.Name, string(check.Status), text})
	}
	return report.Rows(c.io.Stdout, []string{"CHECK", "STATUS", "MESSAGE"}, rows)
}

func newExamination() examination {
	return examination{APIVersion: report.APIVersion, Kind: "Examination", Version: ownVersions().Version, Checks: []doctor.Check{}}
}

func (c *doctorCommand) fail(r report.Report) error {
	document := newExamination()
	document.ExitCode, document.Failure = r.ExitCode, r.Failure
	return c.writeDocument(c.output, document)
}
