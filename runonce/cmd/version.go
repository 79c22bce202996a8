package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	goruntime "runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/report"
)

// The linker sets these (-X). The defaults come from the build information.
var (
	version = ""
	commit  = ""
	date    = ""
)

// versionCommand is "version".
type versionCommand struct {
	*program
	outputFlags
	ociRuntimeFlags
	engineFlags
}

func (p *program) versionCommand() *cli.Command {
	c := &versionCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{Name: "version", Usage: "print the versions of runonce, its components and the OCI runtime"},
		c, &c.outputFlags, &c.ociRuntimeFlags, &c.engineFlags)
}

func (c *versionCommand) run(ctx context.Context, _ []string) error {
	v := ownVersions()
	if err := c.addExternal(ctx, &v); err != nil {
		return err
	}
	return c.write(c.output, v, func(report.Style) error { return v.table(c.io.Stdout) })
}

func (c *versionCommand) fail(r report.Report) error {
	v := ownVersions()
	v.Failure = r.Failure
	return c.writeDocument(c.output, v)
}

// addExternal adds the versions of other programs.
func (c *versionCommand) addExternal(ctx context.Context, v *versions) error {
	if c.io.Versions == nil {
		return nil
	}
	o := c.engine(c.console)
	o.RuncPath = c.ociRuntime
	found, err := c.io.Versions(ctx, o)
	if err != nil {
		return unusable(fmt.Errorf("container engine: %w", err))
	}
	if o.Address != "" {
		v.Daemon = &externalProgram{Path: o.Address, Version: found.Daemon}
	}
	if found.RuntimePath != "" {
		v.Runtime = &externalProgram{Path: found.RuntimePath, Version: found.Runtime, Reason: found.RuntimeReason}
	}
	return nil
}

// versions is the document that version writes.
type versions struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Version
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Date       string `json:"date"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"` // whose validation is built in
	Containerd string `json:"containerd"` // the built-in one

	Daemon  *externalProgram `json:"daemon,omitempty"`  // containerd, with --address
	Runtime *externalProgram `json:"runtime,omitempty"` // the OCI runtime
	report.Failure
}

type externalProgram struct {
	Path    string `json:"path"` // of the program, or of its socket
	Version string `json:"version"`
	// Reason says for people why it is this one, if others are possible.
	Reason string `json:"reason,omitempty"`
}

// table writes one row for each version.
func (v versions) table(w io.Writer) error {
	rows := [][]string{
		{"runonce", v.Version},
		{"commit", v.Commit},
		{"date", v.Date},
		{"go", v.Go},
		{"platform", v.Platform},
		{"kubernetes", v.Kubernetes},
		{"containerd", v.Containerd},
	}
	if v.Daemon != nil {
		rows = append(rows, []string{"daemon", v.Daemon.Version + " at " + v.Daemon.Path})
	}
	if v.Runtime != nil {
		rows = append(rows, []string{"runtime", v.Runtime.Version + " at " + v.Runtime.Path + ", since " + v.Runtime.Reason})
	}
	return report.Rows(w, nil, rows)
}

// ownVersions returns the versions of this program and its modules.
func ownVersions() versions {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	build := map[string]string{}
	for _, s := range info.Settings {
		build[s.Key] = s.Value
	}
	for _, m := range info.Deps {
		build[m.Path] = m.Version
	}
	return versions{
		APIVersion: report.APIVersion, Kind: "Version",
		Version:    cmp.Or(version, info.Main.Version, "unknown"),
		Commit:     cmp.Or(commit, build["vcs.revision"], "unknown"),
		Date:       cmp.Or(date, build["vcs.time"], "unknown"),
		Go:         goruntime.Version(),
		Platform:   goruntime.GOOS + "/" + goruntime.GOARCH,
		Kubernetes: cmp.Or(build["k8s.io/kubernetes"], "unknown"),
		Containerd: cmp.Or(build["github.com/containerd/containerd/v2"], "unknown"),
	}
}
