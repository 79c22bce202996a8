package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runtime/serve"
	"github.com/runonce/runonce/runtime/serve/kubelet"
)

// Files below the state directory.
const (
	serveSocket = "serve.sock"
	kubeconfig  = "kubeconfig"
)

// serveFlags say where pods are served.
type serveFlags struct {
	flag, usage, preset        string // of the flag with the address
	address, certFile, keyFile string
}

func (f *serveFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: f.flag, Destination: &f.address, Category: categoryServe, Usage: f.usage, DefaultText: f.preset},
		&cli.StringFlag{Name: "tls-cert", Destination: &f.certFile, Category: categoryServe, Usage: "use the certificate in `FILE`", DefaultText: "a new one, on loopback only"},
		&cli.StringFlag{Name: "tls-key", Destination: &f.keyFile, Category: categoryServe, Usage: "use the private key in `FILE`", DefaultText: "a new one"},
	}
}

func (f *serveFlags) check() error {
	if f.address == "" {
		return nil
	}
	o, err := f.options()
	if err != nil {
		return usagef("--%s: %w", f.flag, err)
	}
	if err := o.Check(); err != nil {
		return usagef("--%s: %w; see --tls-cert and --tls-key", f.flag, err)
	}
	return nil
}

func (f *serveFlags) options() (serve.Options, error) {
	address, err := serve.ParseAddress(f.address)
	return serve.Options{Address: address, CertFile: f.certFile, KeyFile: f.keyFile}, err
}

// listen opens the address, and says so. The target is open; probe is set if nobody else in
// this process probes its pods.
func (f *serveFlags) listen(ctx context.Context, t *nodeTarget, node string, probe bool) (*serve.Server, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	o.Kubeconfig, o.Log = filepath.Join(t.options.State, kubeconfig), t.log
	o.Handler = kubelet.Handler(kubelet.Options{
		Node: node, Started: time.Now(), Pods: serve.Pods{Runtime: t.pods, Probe: probe}, Runtime: t.pods, Log: t.log,
	})
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, unusable(err)
	}
	t.println("serving on " + server.Address().String())
	return server, nil
}

// serveCommand is "serve".
type serveCommand struct {
	*program
	engineFlags
	serveFlags
	nodeName string
}

func (p *program) serveCommand() *cli.Command {
	c := &serveCommand{program: p, serveFlags: serveFlags{flag: "listen", usage: "listen on `ADDRESS`", preset: "unix:STATE/" + serveSocket}}
	return p.command(cli.Command{
		Name: "serve", Usage: "serve the pods of this machine as a kubelet does",
		Description: "What can read a kubelet can read this: pods, logs, commands in containers, ports, statistics.\n" +
			"ADDRESS is unix:PATH, for root only, or HOST:PORT, which needs TLS and a token: see \"runonce\n" +
			"kubeconfig\". It starts and stops no pods.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "node-name", Destination: &c.nodeName, Usage: "`NAME` of the node", DefaultText: "the host name"},
		},
	}, c, &c.serveFlags, &c.engineFlags)
}

func (c *serveCommand) run(ctx context.Context, _ []string) (err error) {
	c.serveFlags.address = cmp.Or(c.serveFlags.address, "unix:"+filepath.Join(c.state, serveSocket))
	if c.nodeName == "" {
		if c.nodeName, err = os.Hostname(); err != nil {
			return unusable(fmt.Errorf("finding the name of the node: %w", err))
		}
	}
	t := c.machine(c.engine(c.console))
	defer t.close()
	if err := t.connect(ctx); err != nil {
		return err
	}
	server, err := c.listen(ctx, t, c.nodeName, true)
	if err != nil {
		return err
	}
	if c.io.Notify != nil {
		c.io.Notify("READY=1")
	}
	if err := server.Serve(ctx); err != nil {
		return unusable(err)
	}
	return nil
}

// kubeconfigCommand is "kubeconfig".
type kubeconfigCommand struct {
	*program
	state string
}

func (p *program) kubeconfigCommand() *cli.Command {
	c := &kubeconfigCommand{program: p}
	return p.command(cli.Command{
		Name: "kubeconfig", Usage: `print how clients connect to "runonce serve"`,
		Description: "The file is for clients on this machine, and holds a token: keep it to yourself. It is valid as\n" +
			"long as \"runonce serve --listen HOST:PORT\" runs.",
		Flags: []cli.Flag{textFlag(&c.state, "", "state `DIR` of \"runonce serve\"", "state", "/run/runonce")},
	}, c)
}

func (c *kubeconfigCommand) run(context.Context, []string) error {
	if err := resolveDir("state", &c.state); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(c.state, kubeconfig))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unusable(fmt.Errorf(`no kubeconfig in %s: run "runonce serve --listen 127.0.0.1:0" first`, c.state))
	case err != nil:
		return unusable(err)
	}
	if _, err := c.io.Stdout.Write(text); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}
