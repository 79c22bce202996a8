package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/serve"
	"github.com/runonce/runonce/runtime/serve/apiserver"
	"github.com/runonce/runonce/runtime/serve/kubelet"
	"github.com/runonce/runonce/runtime/serve/mirror"
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
	clientCAFile               string
}

func (f *serveFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: f.flag, Destination: &f.address, Category: categoryServe, Usage: f.usage, DefaultText: f.preset},
		&cli.StringFlag{Name: "tls-cert", Destination: &f.certFile, Category: categoryServe, Usage: "use the certificate in `FILE`", DefaultText: "a new one, on loopback only"},
		&cli.StringFlag{Name: "tls-key", Destination: &f.keyFile, Category: categoryServe, Usage: "use the private key in `FILE`", DefaultText: "a new one"},
		&cli.StringFlag{Name: "tls-client-ca", Destination: &f.clientCAFile, Category: categoryServe, Usage: "let in clients without the token if a certificate in `FILE` has signed theirs"},
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
	return serve.Options{Address: address, CertFile: f.certFile, KeyFile: f.keyFile, ClientCAFile: f.clientCAFile}, err
}

// listen opens the address, says so, and returns what serves until its context is done. The target is open. a is that of
// the command that runs its pods in this process, nil if none does.
func (f *serveFlags) listen(ctx context.Context, t *nodeTarget, node *v1.Node, a *acceptor) (run func(context.Context) error, err error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	node, err = t.served(ctx, node)
	if err != nil {
		return nil, err
	}
	m := mirror.New(mirror.Options{
		Runtime: t.pods, Look: a == nil, Records: t.records, Logs: logs.Store{Dir: t.options.LogDir, Root: t.options.Root},
		Services: t.engine.Services().Services, Node: node, Log: t.log,
	})
	served := servedPods{t, a}
	o.Kubeconfig, o.Log = filepath.Join(t.options.State, kubeconfig), t.log
	o.Handler = apiserver.Handler(apiserver.Options{
		Mirror: m, Pods: served, Acceptor: a.orNone(), Usage: served, Version: apiVersion(), User: "system:admin", Log: t.log,
		Kubelet: kubelet.Handler(kubelet.Options{Node: node.Name, Started: time.Now(), MaxPods: node.Status.Capacity.Pods().Value(), Pods: m, Runtime: t.pods, Log: t.log}),
	})
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, unusable(err)
	}
	t.println("serving on " + server.Address().String())
	return func(ctx context.Context) error {
		following, cancel := context.WithCancel(ctx)
		var working sync.WaitGroup
		working.Go(func() { m.Run(following) })
		defer working.Wait()
		defer cancel()
		return server.Serve(ctx)
	}, nil
}

// apiVersion is the version of the Kubernetes API that is served, and of this program.
func apiVersion() string {
	own := ownVersions()
	return own.Kubernetes + "+runonce-" + strings.Trim(notInVersions.ReplaceAllString(own.Version, "-"), "-")
}

// notInVersions are the characters that a semantic version cannot have.
var notInVersions = regexp.MustCompile(`[^0-9A-Za-z.]+`)

// served returns the node with what clients want to know of it.
func (t *nodeTarget) served(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	node = node.DeepCopy()
	info := &node.Status.NodeInfo
	info.KubeletVersion, info.ContainerRuntimeVersion = apiVersion(), "containerd://"+ownVersions().Containerd
	if t.options.Address != "" && t.io.Versions != nil {
		found, err := t.io.Versions(ctx, t.options)
		if err != nil {
			return nil, unusable(fmt.Errorf("container engine: %w", err))
		}
		info.ContainerRuntimeVersion = "containerd://" + found.Daemon
	}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: node.Name}}
	for _, ip := range t.pods.NodeIPs() {
		node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return node, nil
}

// servedPods are the pods of this machine, for clients.
type servedPods struct {
	*nodeTarget
	accepted *acceptor
}

// Remove does what "runonce down" does to a pod.
func (t servedPods) Remove(ctx context.Context, pod *v1.Pod, grace time.Duration) error {
	if t.accepted != nil {
		if err := t.accepted.forget(pod); err != nil {
			return err
		}
	}
	limited := ctx
	if grace < podspec.TerminationGrace(pod) {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, grace+runtime.StopReserve)
		defer cancel()
	}
	_, err := t.stop(limited, pod)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		_, err = t.stop(ctx, pod) // what is left of it, with all the time that this takes
	}
	return err
}

// Debug does what "runonce debug" does.
func (t servedPods) Debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error {
	return t.startDebugger(ctx, pod, c)
}

// Used returns what a pod and its containers have used.
func (t servedPods) Used(ctx context.Context, pod *v1.Pod) (podusage.Sample, map[string]podusage.Sample, error) {
	return t.pods.Used(ctx, pod)
}

// Machine returns what all of the machine has used.
func (t servedPods) Machine() (podusage.Sample, error) { return kubelet.MachineUsage(t.io.Machine) }

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
		Name: "serve", Usage: "serve the pods of this machine to kubectl and other programs",
		Description: "It answers as the API server of a cluster does whose only node is this machine, and as its\n" +
			"kubelet. It starts no pods, and stops those that clients delete. ADDRESS is unix:PATH, for root\n" +
			"only, or HOST:PORT, which needs TLS and a token: see \"runonce kubeconfig\".",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "node-name", Destination: &c.nodeName, Usage: "`NAME` of the node", DefaultText: "the host name"},
		},
	}, c, &c.serveFlags, &c.engineFlags)
}

func (c *serveCommand) run(ctx context.Context, _ []string) (err error) {
	c.serveFlags.address = cmp.Or(c.serveFlags.address, "unix:"+filepath.Join(c.state, serveSocket))
	o := c.engine(c.console)
	node, err := c.detect(admit.NodeOptions{Name: c.nodeName}, o.Root, c.devices(nil))
	if err != nil {
		return err
	}
	t := c.machine(o)
	defer t.close()
	if err := t.connect(ctx); err != nil {
		return err
	}
	run, err := c.listen(ctx, t, node, nil)
	if err != nil {
		return err
	}
	if c.io.Notify != nil {
		c.io.Notify("READY=1")
	}
	if err := run(ctx); err != nil {
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
