package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/portforward"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/service"
)

// portForwardCommand is "port-forward".
type portForwardCommand struct {
	*program
	pastFlags
	addresses list
}

func (p *program) portForwardCommand() *cli.Command {
	c := &portForwardCommand{program: p}
	return p.command(cli.Command{
		Name: "port-forward", Usage: "forward ports of this machine to a pod", ArgsUsage: "[NAMESPACE/]POD|svc/SERVICE [ADDRESS:]LOCAL[:REMOTE]...",
		Description: "Connections are made from inside the network of the pod, also to what listens on its\n" +
			"loopback interface only. REMOTE is a number or a name, and by default the number LOCAL.\n" +
			"A LOCAL of 0 is any free port; the ports are printed. The connections to a Service go to its\n" +
			"pods that are ready. The command ends when the pod does.",
		Flags: []cli.Flag{
			listFlag(&c.addresses, "", "listen on `ADDRESS` where none is given", "listen", portforward.Localhost),
		},
	}, c, &c.pastFlags)
}

func (c *portForwardCommand) run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return usagef("port-forward needs a POD and a port, as in: runonce port-forward web 8080:80")
	}
	var mappings []portforward.Mapping
	for _, text := range args[1:] {
		m, err := portforward.Parse(text)
		if err != nil {
			return usagef("port mapping %w", err)
		}
		mappings = append(mappings, m)
	}
	for _, address := range c.addresses.values {
		if _, err := portforward.ParseAddress(address); err != nil {
			return usagef("--listen: %w", err)
		}
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	err = c.forward(ctx, t, args[0], mappings)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (c *portForwardCommand) forward(ctx context.Context, t target, ref string, mappings []portforward.Mapping) error {
	to, err := t.destination(ctx, ref, c.podNamespace)
	if err != nil {
		return err
	}
	if to, ok := to.(io.Closer); ok {
		defer func() { _ = to.Close() }()
	}
	targets, err := portforward.Resolve(mappings, to)
	if err != nil {
		return usagef("%w", err)
	}
	addresses := c.addresses.values
	if len(addresses) == 0 {
		addresses = []string{portforward.Localhost}
	}
	listeners, err := portforward.Listen(ctx, targets, addresses)
	if err != nil {
		return unusable(err)
	}
	for _, l := range listeners {
		// In kubectl's words, for the scripts that read them.
		if _, err = fmt.Fprintf(c.io.Stdout, "Forwarding from %s -> %d\n", l.Addr(), l.Remote); err != nil {
			return fmt.Errorf("writing the ports: %w", err)
		}
	}
	return portforward.Serve(ctx, listeners, to, func(l portforward.Listener, err error) {
		c.log.WarnContext(ctx, "could not forward a connection", "from", l.Addr(), "port", l.Remote, "error", err)
	})
}

// destination returns the pod or the Service of this machine that a reference names. It needs no engine.
func (t *nodeTarget) destination(ctx context.Context, ref, namespace string) (portforward.Destination, error) {
	records := record.Open(t.options.Root, t.options.State)
	name, ok := serviceIn(ref)
	if !ok {
		pod, err := t.find(ctx, ref, namespace)
		return &podPorts{records, pod}, err
	}
	all, err := service.Recorded(t.options.Root)
	if err != nil {
		return nil, unusable(err)
	}
	all = slices.DeleteFunc(all, func(svc *v1.Service) bool { return namespace != "" && svc.Namespace != namespace })
	named, err := resolve(name, all, podspec.NameOf, usagef("no Service %q on this machine", name))
	if err != nil {
		return nil, err
	}
	if !podspec.HasEndpoints(named[0]) {
		return nil, badInput(podspec.NoSelector(named[0]))
	}
	return &servicePorts{records: records, service: named[0]}, nil
}

// podPorts are the ports of a pod of this machine.
type podPorts struct {
	records *record.Store
	pod     *v1.Pod
}

func (p *podPorts) Port(remote intstr.IntOrString) (int32, error) {
	return podspec.PortOf(p.pod, remote)
}

func (p *podPorts) Lost(context.Context) error {
	r, err := p.records.Load(p.pod.UID)
	if err == nil && !r.Removed {
		_, err = network.Recorded(p.records, p.pod)
	}
	if err != nil || r.Removed {
		return fmt.Errorf("pod %q has ended", podspec.FullName(p.pod))
	}
	return nil
}

func (p *podPorts) Dial(ctx context.Context, port int32) (io.ReadWriteCloser, error) {
	return dialRecorded(ctx, p.records, p.pod, port)
}

func dialRecorded(ctx context.Context, records *record.Store, pod *v1.Pod, port int32) (net.Conn, error) {
	sandbox, err := network.Recorded(records, pod)
	if err != nil {
		return nil, err
	}
	return runtime.DialSandbox(ctx, sandbox, port)
}

// servicePorts are the ports of a Service of this machine.
type servicePorts struct {
	records *record.Store
	service *v1.Service
	next    atomic.Uint32
}

func (s *servicePorts) Port(remote intstr.IntOrString) (int32, error) {
	port, err := podspec.TCPPort(s.service, remote)
	return port.Port, err
}

// Lost returns nil: a Service may get other pods.
func (s *servicePorts) Lost(context.Context) error { return nil }

// Dial connects to one of the pods in turn, or to another one if that refuses.
func (s *servicePorts) Dial(ctx context.Context, number int32) (io.ReadWriteCloser, error) {
	port, err := podspec.TCPPort(s.service, intstr.FromInt32(number))
	if err != nil {
		return nil, err
	}
	pods, err := service.Endpoints(s.records, s.service)
	if err != nil {
		return nil, err
	}
	var errs []error
	first := int(s.next.Add(1)) % max(1, len(pods))
	for _, pod := range slices.Concat(pods[first:], pods[:first]) {
		target, ok := podspec.TargetPort(port, pod)
		if !ok {
			continue
		}
		conn, err := dialRecorded(ctx, s.records, pod, target)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, cmp.Or(errors.Join(errs...), podspec.NoEndpoints(s.service))
}

// serviceIn returns the reference to a Service, without the kind before it.
func serviceIn(ref string) (name string, ok bool) {
	kind, name, ok := strings.Cut(ref, "/")
	return name, ok && slices.Contains([]string{"svc", "service", "services"}, kind)
}

// destination returns the pod or the Service of the cluster that a reference names.
func (t *clusterTarget) destination(ctx context.Context, ref, namespace string) (portforward.Destination, error) {
	name, ok := serviceIn(ref)
	if !ok {
		pod, err := t.find(ctx, ref, namespace)
		if err != nil {
			return nil, err
		}
		return t.pods.ForwardToPod(pod), nil
	}
	if given, short, ok := strings.Cut(name, "/"); ok {
		namespace, name = given, short
	}
	full := types.NamespacedName{Namespace: cmp.Or(namespace, t.config.Namespace), Name: name}
	if err := t.open(ctx, func() []string { return []string{full.Namespace} }); err != nil {
		return nil, err
	}
	to, err := t.pods.ForwardToService(ctx, full)
	if err != nil {
		return nil, badInput(err)
	}
	return to, nil
}
