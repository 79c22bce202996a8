package containerd_test

import (
	"errors"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"
)

// TestFaults and TestCrunFaults: the same faults have the same reasons, whatever an OCI runtime
// says about them.
func TestFaults(t *testing.T) {
	testFaults(t, "runc")
}

func TestCrunFaults(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) { testFaults(t, "crun") })
}

// fault is something wrong with a container.
type fault struct {
	name      string
	change    func(s *specs.Spec)
	permanent bool
	passes    bool // by itself; all else ends the container
	// message is that of both runtimes; without it each has one with its own words.
	message    string
	runc, crun string
}

func faults() []fault {
	run := func(args ...string) func(s *specs.Spec) {
		return func(s *specs.Spec) { s.Process.Args = args }
	}
	bind := func(source, target string) func(s *specs.Spec) {
		return func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"rbind"}})
		}
	}
	return []fault{
		{name: "command missing", change: run("nope"), permanent: true, message: `exec: "nope": executable file not found in $PATH`},
		{name: "path missing", change: run("/bin/nope"), permanent: true, message: `exec: "/bin/nope": stat /bin/nope: no such file or directory`},
		{name: "not executable", change: run("/etc/passwd"), permanent: true, message: `exec: "/etc/passwd": permission denied`},
		{name: "directory as the command", change: run("/etc"), permanent: true, runc: `exec: "/etc": `, crun: `exec: "/etc": `},
		{
			name: "file as the working directory", change: func(s *specs.Spec) { s.Process.Cwd = "/etc/passwd" }, permanent: true,
			runc: "/etc/passwd: not a directory", crun: "chdir `/etc/passwd`: Not a directory",
		},
		{
			name: "source of a mount missing", change: bind("/no/such", "/data"), passes: true,
			runc: `error mounting "/no/such" to rootfs at "/data"`, crun: "`/no/such`: No such file or directory",
		},
		{
			name: "directory mounted on a file", change: bind("/etc", "/etc/passwd"), permanent: true,
			runc: `error mounting "/etc" to rootfs at "/etc/passwd"`, crun: "mount `/etc` to `etc/passwd`: Not a directory",
		},
		{
			name: "network namespace missing", passes: true,
			change: func(s *specs.Spec) {
				s.Linux.Namespaces = []specs.LinuxNamespace{
					{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/run/no-such-namespace"},
				}
			},
			runc: "/run/no-such-namespace: no such file or directory", crun: "open `/run/no-such-namespace`: No such file or directory",
		},
		{
			name: "CPU that the machine lacks", change: func(s *specs.Spec) { s.Linux.Resources.CPU = &specs.LinuxCPU{Cpus: "4000"} },
			runc: "cpuset.cpus: ", crun: "cpuset.cpus`: ",
		},
		{
			name: "unknown file system", change: func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Type: "nofs", Source: "x", Destination: "/data"})
			},
			runc: "no such device", crun: "No such device",
		},
		{
			name: "memory limit too low", change: func(s *specs.Spec) {
				limit := int64(64 << 10)
				s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
			},
			runc: "memory limit", crun: "the memory limit could be too low",
		},
	}
}

func testFaults(t *testing.T, runtime string) {
	t.Helper()
	p := newTestDirs(t)
	p.runtime = runtime
	e := p.openWithBox(t)
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			c := p.box(t, "a", "sleep")
			f.change(c.Spec)
			err := e.Start(t.Context(), c)
			if err == nil {
				t.Fatal("it started")
			}
			want := map[string]string{"runc": f.runc, "crun": f.crun}[runtime]
			if f.message != "" && err.Error() != `starting container "main": `+f.message || !strings.Contains(err.Error(), want) {
				t.Errorf("message %q, want %q", err, f.message+want)
			}
			var own *failure.Error
			if !errors.As(err, &own) || own.Reason() != failure.ReasonRunError || own.Permanent() != f.permanent || own.Refused() == f.passes {
				t.Errorf("error %+v, want reason %s, permanent %t and refused %t", err, failure.ReasonRunError, f.permanent, !f.passes)
			}
			if left := leftovers(t, p); left != "" && !onlySnapshots(left) {
				t.Errorf("left:\n%s", left)
			}
		})
	}
	testExecFaults(t, p, e)
}

// testExecFaults runs commands as probes and hooks do.
func testExecFaults(t *testing.T, p testDirs, e engine.Engine) {
	t.Helper()
	if err := e.Start(t.Context(), p.box(t, "b", "sleep")); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"nope":        `exec: "nope": executable file not found in $PATH`,
		"/bin/nope":   `exec: "/bin/nope": stat /bin/nope: no such file or directory`,
		"/etc/passwd": `exec: "/etc/passwd": permission denied`,
	} {
		_, err := e.Exec(t.Context(), "b", []string{command})
		if err == nil || !strings.HasSuffix(err.Error(), `in container "b": `+want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if got, err := e.Exec(t.Context(), "b", []string{"box", "exit", "9", "bye"}); err != nil || got.ExitCode != 9 || string(got.Output) != "bye\n" {
		t.Errorf("%+v, %v", got, err)
	}
}
