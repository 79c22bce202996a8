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

// serveCommand is "serve".
type serveCommand struct {
	*program
	engineFlags
	listen, nodeName  string
	certFile, keyFile string
}

func (p *program) serveCommand() *cli.Command {
	c := &serveCommand{program: p}
	return p.command(cli.Command{
		Name: "serve", Usage: "serve the pods of this machine as a kubelet does",
		Description: "What can read a kubelet can read this: pods, logs, commands in containers, ports, statistics.\n" +
			"ADDRESS is unix:PATH, for root only, or HOST:PORT, which needs TLS and a token: see \"runonce\n" +
			"kubeconfig\". It starts and stops no pods.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Destination: &c.listen, Usage: "listen on `ADDRESS`", DefaultText: "unix:STATE/" + serveSocket},
			&cli.StringFlag{Name: "node-name", Destination: &c.nodeName, Usage: "`NAME` of the node", DefaultText: "the host name"},
			&cli.StringFlag{Name: "tls-cert", Destination: &c.certFile, Usage: "use the certificate in `FILE`", DefaultText: "a new one, on loopback only"},
			&cli.StringFlag{Name: "tls-key", Destination: &c.keyFile, Usage: "use the private key in `FILE`", DefaultText: "a new one"},
		},
	}, c, &c.engineFlags)
}

// options returns where to listen.
func (c *serveCommand) options() (serve.Options, error) {
	address, err := serve.ParseAddress(cmp.Or(c.listen, "unix:"+filepath.Join(c.state, serveSocket)))
	if err != nil {
		return serve.Options{}, usagef("--listen: %w", err)
	}
	o := serve.Options{Address: address, CertFile: c.certFile, KeyFile: c.keyFile, Kubeconfig: filepath.Join(c.state, kubeconfig), Log: c.log}
	if err := o.Check(); err != nil {
		return o, usagef("--listen: %w; see --tls-cert and --tls-key", err)
	}
	return o, nil
}

func (c *serveCommand) run(ctx context.Context, _ []string) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	name := c.nodeName
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return unusable(fmt.Errorf("finding the name of the node: %w", err))
		}
	}
	t := c.machine(c.engine(c.console))
	defer t.close()
	if err := t.connect(ctx); err != nil {
		return err
	}
	o.Handler = kubelet.Handler(kubelet.Options{
		Node: name, Started: time.Now(), Pods: serve.Pods{Runtime: t.pods}, Runtime: t.pods, Log: c.log,
	})
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return unusable(err)
	}
	c.println("serving on " + server.Address().String())
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
