// Package probe runs the startup, readiness and liveness probes of containers by the kubelet's
// rules (pkg/kubelet/prober, pkg/probe), from inside the pod's network namespace.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/runtime/ocispec"
)

const (
	// maxOutput bounds what is kept of an output, in bytes.
	maxOutput = 10 << 10
	// maxTries is how often a probe is tried that cannot be run.
	maxTries = 3
	// userAgent and hookAgent are the user agents of probes and of lifecycle hooks.
	userAgent = "kube-probe/1.37"
	hookAgent = "kube-lifecycle/1.37"
)

// Result is what a probe found.
type Result string

// The results of a probe. Unknown means that it could not be run.
const (
	Success Result = "Success"
	Failure Result = "Failure"
	Unknown Result = "Unknown"
)

// Outcome is the outcome of one probe.
type Outcome struct {
	Result Result
	Output string // of the container, or why the probe failed
}

// Target is a container that is probed.
type Target struct {
	Container *v1.Container // for its named ports and its environment
	NetNS     string        // path of the pod's network namespace, empty for the host's
	IP        string        // the pod's
	// Exec runs a command inside the container. An error says that it could not be run, or was
	// not done before ctx was.
	Exec func(ctx context.Context, command []string) (exitCode int32, output []byte, err error)
	// Checked, if set, is called by Watch with each result, whether or not it has reached its threshold.
	Checked func(Kind, Result)
}

// Check runs the probe, within its timeout, and again when it could not be run, up to three
// times.
func Check(ctx context.Context, t Target, p *v1.Probe) Outcome {
	var err error
	for range maxTries {
		var o Outcome
		o, err = t.check(ctx, p)
		if ctx.Err() != nil {
			// The container has not failed: the probe was interrupted.
			return Outcome{Unknown, context.Cause(ctx).Error()}
		}
		if err == nil {
			return o
		}
	}
	return Outcome{Unknown, err.Error()}
}

// check runs the probe. An error says that it could not be run.
func (t Target) check(ctx context.Context, p *v1.Probe) (Outcome, error) {
	timeout := time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case p.Exec != nil:
		return t.exec(ctx, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		return t.httpGet(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		return t.tcpSocket(ctx, p.TCPSocket)
	case p.GRPC != nil:
		return t.grpc(ctx, p.GRPC, timeout)
	}
	return Outcome{}, errors.New("the probe has no handler")
}

func (t Target) exec(ctx context.Context, command []string, timeout time.Duration) (Outcome, error) {
	command = expandStatic(command, t.Container.Env)
	code, output, err := t.Exec(ctx, command)
	output = output[:min(len(output), maxOutput)]
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Outcome{Failure, fmt.Sprintf("command %q timed out after %s", command, timeout)}, nil
	case err != nil:
		return Outcome{}, err
	case code != 0:
		return Outcome{Failure, string(output)}, nil
	}
	return Outcome{Success, string(output)}, nil
}

// expandStatic replaces $(NAME) in a command by the literal values of the container's env, as
// the kubelet does for probes (ExpandContainerCommandOnlyStatic).
func expandStatic(command []string, env []v1.EnvVar) []string {
	static := make([]string, 0, len(env))
	for _, e := range env {
		static = append(static, e.Name+"="+e.Value)
	}
	return ocispec.ExpandAll(command, static)
}

func (t Target) tcpSocket(ctx context.Context, a *v1.TCPSocketAction) (Outcome, error) {
	addr, err := t.address(a.Host, a.Port)
	if err != nil {
		return Outcome{}, err
	}
	conn, err := t.dial(ctx, "tcp", addr)
	if err != nil {
		return failed(err), nil
	}
	_ = conn.Close()
	return Outcome{Result: Success}, nil
}

// failed is the outcome for a container that cannot be reached.
func failed(err error) Outcome { return Outcome{Failure, err.Error()} }

// address returns host:port, the host the pod's IP by default, the port by number or by
// the name that a container port has.
func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.IP
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range t.Container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 || number > 65535 {
		return "", fmt.Errorf("container %q has no port %q", t.Container.Name, port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
