package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/validation"
	"github.com/runonce/runonce/runtime/engine"
)

// debugCommand is "debug".
type debugCommand struct {
	*program
	containerRef // of the new container
	streamFlags
	pastFlags
	registryFlags
	runtimeFlags
	image, policy, beside, profile string
	env, imagesDirs                list
	command                        []string
}

func (p *program) debugCommand() *cli.Command {
	c := &debugCommand{program: p}
	return p.command(cli.Command{
		Name: "debug", Usage: "start an ephemeral container in a pod that runs", ArgsUsage: "[NAMESPACE/]POD [-- COMMAND [ARGUMENT...]]",
		Description: "The container has the network of the pod and an image of its own. It is not restarted, what\n" +
			"becomes of the pod does not depend on it, and it ends with the pod. With -i or -t, debug\n" +
			"attaches to it and has its exit code, or 125 if runonce itself failed. Else it prints the name\n" +
			"of the container and ends. If runonce is interrupted, the container goes on.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "image", Destination: &c.image, Usage: "`IMAGE` of the container"},
			&cli.StringFlag{Name: "target", Destination: &c.beside, Usage: "see and reach the processes of the container `NAME`", DefaultText: "none"},
			&cli.StringFlag{Name: "container", Aliases: []string{"c"}, Destination: &c.container, Usage: "`NAME` of the new container", DefaultText: "debugger-xxxxx"},
			boolFlag(&c.stdin, "", "give the container an input, and pass standard input on to it", "stdin", "i"),
			boolFlag(&c.tty, "", "give the container a terminal", "tty", "t"),
			pathsFlag(&c.env, "", "set the variable `KEY=VALUE`", "env", ""),
			&cli.StringFlag{Name: "profile", Destination: &c.profile, Value: profileNames[0], Usage: "`RIGHTS`: " + alternatives(profileNames[1:]), DefaultText: profileNames[0]},
			&cli.StringFlag{Name: "image-pull-policy", Destination: &c.policy, Usage: "`POLICY`: Always, IfNotPresent or Never", DefaultText: "the API server's"},
			pathsFlag(&c.imagesDirs, categoryImages, "import from `DIR`", "images-dir", "ROOT/images"),
		},
	}, c, &c.pastFlags, &c.registryFlags, &c.runtimeFlags)
}

// profileNames are those of kubectl, the default first.
var profileNames = []string{"general", "baseline", "restricted", "netadmin", "sysadmin"}

// profile returns the security context of an ephemeral container with that profile
// (k8s.io/kubectl/pkg/cmd/debug/profiles.go).
func profile(name string) (*v1.SecurityContext, error) {
	added := func(all ...v1.Capability) *v1.SecurityContext {
		return &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: all}}
	}
	known := map[string]*v1.SecurityContext{
		"general":  added("SYS_PTRACE"),
		"baseline": nil,
		"restricted": {
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		},
		"netadmin": added("NET_ADMIN", "NET_RAW"),
		"sysadmin": {Privileged: new(true)},
	}
	s, ok := known[name]
	if !ok {
		return nil, usagef("--profile %q: must be one of %s", name, strings.Join(profileNames, ", "))
	}
	return s, nil
}

// parse takes the pod and the command from the arguments.
func (c *debugCommand) parse() error {
	pod, command, err := c.podAndCommand()
	switch {
	case err != nil:
		return err
	case c.image == "":
		return usagef("debug needs an image: --image IMAGE")
	}
	c.pod, c.namespace, c.command = pod, c.podNamespace, command
	_, err = profile(c.profile)
	return cmp.Or(checkEnv(c.env.values), err)
}

func (c *debugCommand) run(ctx context.Context, _ []string) error {
	if err := c.parse(); err != nil {
		return err
	}
	o := c.engine(c.console)
	c.registryFlags.setTo(&o.Options, c.io.Getenv)
	c.runtimeFlags.setTo(&o)
	machine := c.machine(o)
	machine.images = &imageFlags{dirs: c.imagesDirs}
	t, err := c.target(&c.clusterFlags, machine, clusterOptions{namespace: c.podNamespace, onlyNamespace: c.podNamespace != ""})
	if err != nil {
		return err
	}
	return c.inContainer(ctx, t, c.debug)
}

func (c *debugCommand) debug(ctx context.Context, t target) (int32, error) {
	pod, err := t.find(ctx, c.pod, c.namespace)
	if err != nil {
		return 0, err
	}
	container, err := c.newContainer(pod)
	if err != nil {
		return 0, err
	}
	if c.container == "" {
		c.println(fmt.Sprintf("Defaulting debug container name to %s.", container.Name))
	}
	if !c.interactive() {
		if err := t.debug(ctx, pod, container, nil); err != nil {
			return 0, err
		}
		_, err = fmt.Fprintln(c.io.Stdout, container.Name)
		return 0, err
	}
	if container.TTY {
		c.println("If you don't see a command prompt, try pressing enter.")
	}
	i := &interaction{console: c.console, pod: pod, container: (*v1.Container)(&container.EphemeralContainerCommon)}
	ctx = i.prepare(ctx, c.streamFlags)
	defer i.end()
	if err := t.debug(ctx, pod, container, i); err != nil {
		return 0, err
	}
	if err := i.wait(ctx); err != nil {
		return 0, err
	}
	return t.exitCode(ctx, pod, container.Name)
}

// interactive says whether debug attaches to the container.
func (c *debugCommand) interactive() bool { return c.stdin || c.tty }

// newContainer returns the container that is asked for. Without a terminal, its input ends with ours.
func (c *debugCommand) newContainer(pod *v1.Pod) (v1.EphemeralContainer, error) {
	rights, err := profile(c.profile)
	tty := c.tty && (!c.stdin || c.io.Terminal != nil)
	e := v1.EphemeralContainer{TargetContainerName: c.beside, EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: cmp.Or(c.container, debuggerName(pod)), Image: c.image, ImagePullPolicy: v1.PullPolicy(c.policy), Command: c.command,
		Stdin: c.stdin, StdinOnce: c.stdin && !tty, TTY: tty, SecurityContext: rights,
	}}
	for _, pair := range c.env.values {
		key, value, _ := strings.Cut(pair, "=")
		e.Env = append(e.Env, v1.EnvVar{Name: key, Value: value})
	}
	return e, err
}

// debuggerName returns the name of a new container in the pod, as kubectl chooses it.
func debuggerName(pod *v1.Pod) string {
	for {
		if name := "debugger-" + rand.String(5); podspec.Container(pod, name) == nil {
			return name
		}
	}
}

// debug starts an ephemeral container in a pod of this machine.
func (t *nodeTarget) debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer, i *interaction) error {
	t.interacts, t.interaction = i != nil, i
	if err := t.connect(ctx); err != nil {
		return err
	}
	defer t.display.Wait(fmt.Sprintf("starting container %q", c.Name))()
	return t.startDebugger(ctx, pod, c)
}

// startDebugger starts an ephemeral container. The engine is open.
func (t *nodeTarget) startDebugger(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error {
	rules, err := validation.New("", pod.Namespace)
	if err != nil {
		return err
	}
	if c, err = rules.Ephemeral(pod, c); err != nil {
		return err
	}
	if t.readOnly {
		return fmt.Errorf("%s is read-only: no container can be started", t.options.PodsRoot)
	}
	return t.pods.Debug(ctx, pod, c)
}

// exitCode returns the exit code of a container of this machine.
func (t *nodeTarget) exitCode(ctx context.Context, pod *v1.Pod, container string) (int32, error) {
	return t.pods.ExitCode(ctx, pod, container)
}

// debug starts an ephemeral container in a pod of the cluster.
func (t *clusterTarget) debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer, i *interaction) error {
	defer t.display.Wait(fmt.Sprintf("waiting for container %q to run", c.Name))()
	if err := t.pods.Debug(ctx, pod, c); err != nil || i == nil {
		return err
	}
	i.begin(func(ctx context.Context, s engine.Streams, start func()) error {
		start()
		return t.takePart(ctx, i, s)
	})
	return nil
}

// exitCode returns the exit code of a container of the cluster.
func (t *clusterTarget) exitCode(ctx context.Context, pod *v1.Pod, container string) (int32, error) {
	return t.pods.ExitCode(ctx, pod, container)
}
