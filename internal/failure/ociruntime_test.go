package failure

import (
	"cmp"
	"errors"
	"strings"
	"testing"
)

// TestRuntimeMessage has texts of runc 1.1.5 and of crun 1.8.1 for the same faults.
func TestRuntimeMessage(t *testing.T) {
	t.Parallel()
	const (
		create = "failed to create task: failed to create shim task: OCI runtime create failed: "
		runc   = create + "runc create failed: unable to start container process: "
		exec   = "OCI runtime exec failed: exec failed: unable to start container process: "
		inCrun = "OCI runtime exec failed: "
	)
	for _, tc := range []struct {
		name      string
		command   string
		runc      string
		crun      string // empty if it does not have that error
		want      string
		wantCrun  string // unless it is the same
		permanent bool
		passes    bool // by itself
	}{
		{
			name: "command missing", command: "nope", permanent: true,
			runc: runc + `exec: "nope": executable file not found in $PATH`,
			crun: create + "executable file `nope` not found in $PATH: No such file or directory",
			want: `exec: "nope": executable file not found in $PATH`,
		},
		{
			name: "path missing", command: "/bin/nope", permanent: true,
			runc: runc + `exec: "/bin/nope": stat /bin/nope: no such file or directory`,
			crun: create + "executable file `/bin/nope` not found in $PATH: No such file or directory",
			want: `exec: "/bin/nope": stat /bin/nope: no such file or directory`,
		},
		{
			name: "path missing, in newer versions", command: "/bin/nope", permanent: true,
			runc: runc + `exec: "/bin/nope": stat /bin/nope: no such file or directory`,
			crun: create + "executable file `/bin/nope` not found: No such file or directory",
			want: `exec: "/bin/nope": stat /bin/nope: no such file or directory`,
		},
		{
			name: "not executable", command: "/etc/passwd", permanent: true,
			runc: runc + `exec: "/etc/passwd": permission denied`,
			crun: create + "open executable: Permission denied",
			want: `exec: "/etc/passwd": permission denied`,
		},
		{
			name: "directory as the command", command: "/etc", permanent: true,
			runc:     runc + `exec: "/etc": is a directory`,
			crun:     create + "open executable: Operation not permitted",
			want:     `exec: "/etc": is a directory`,
			wantCrun: `exec: "/etc": operation not permitted`,
		},
		{
			name: "command below a file", command: "/etc/passwd/x", permanent: true,
			runc:     runc + `exec: "/etc/passwd/x": stat /etc/passwd/x: not a directory`,
			crun:     create + "open executable: Not a directory",
			want:     `exec: "/etc/passwd/x": stat /etc/passwd/x: not a directory`,
			wantCrun: `exec: "/etc/passwd/x": not a directory`,
		},
		{
			name: "file as the working directory", command: "sh", permanent: true,
			runc:     runc + "error during container init: mkdir /etc/passwd: not a directory",
			crun:     create + "chdir `/etc/passwd`: Not a directory",
			want:     "mkdir /etc/passwd: not a directory",
			wantCrun: "chdir `/etc/passwd`: Not a directory",
		},
		{
			name: "source of a mount missing", command: "sh", passes: true,
			runc:     runc + `error during container init: error mounting "/no" to rootfs at "/data": stat /no: no such file or directory`,
			crun:     create + "error stat'ing file `/no`: No such file or directory",
			want:     `error mounting "/no" to rootfs at "/data": stat /no: no such file or directory`,
			wantCrun: "error stat'ing file `/no`: No such file or directory",
		},
		{
			name: "file mounted on a directory", command: "sh", permanent: true,
			runc:     runc + `error during container init: error mounting "/a" to rootfs at "/work": mount /a:/work (via /proc/self/fd/6), flags: 0x1000: not a directory`,
			crun:     create + "mount `/a` to `work`: Not a directory",
			want:     `error mounting "/a" to rootfs at "/work": mount /a:/work (via /proc/self/fd/6), flags: 0x1000: not a directory`,
			wantCrun: "mount `/a` to `work`: Not a directory",
		},
		{
			name: "volume at /proc", command: "sh", permanent: true,
			runc: runc + `error during container init: error mounting "/v" to rootfs at "/proc": "/run/rootfs/proc" cannot be mounted because it is not of type proc`,
			want: `error mounting "/v" to rootfs at "/proc": "/run/rootfs/proc" cannot be mounted because it is not of type proc`,
		},
		{
			name: "volume in /proc", command: "sh", permanent: true,
			runc: runc + `error during container init: error mounting "/v" to rootfs at "/proc/x": "/run/rootfs/proc/x" cannot be mounted because it is inside /proc`,
			want: `error mounting "/v" to rootfs at "/proc/x": "/run/rootfs/proc/x" cannot be mounted because it is inside /proc`,
		},
		{
			name: "invalid seccomp profile", command: "sh", permanent: true,
			runc: runc + "string SCMP_ACT_NOPE is not a valid action for seccomp",
			want: "string SCMP_ACT_NOPE is not a valid action for seccomp",
		},
		{
			name: "unknown file system", command: "sh",
			runc:     runc + `error during container init: error mounting "x" to rootfs at "/data": mount x:/data (via /proc/self/fd/6): no such device`,
			crun:     create + "mount `x` to `data`: No such device",
			want:     `error mounting "x" to rootfs at "/data": mount x:/data (via /proc/self/fd/6): no such device`,
			wantCrun: "mount `x` to `data`: No such device",
		},
		{
			name: "CPU that the machine lacks", command: "sh",
			runc: runc + `unable to apply cgroup configuration: failed to write "100-101": write /sys/fs/cgroup/cpuset/x/cpuset.cpus: numerical result out of range`,
			crun: create + "writing file `cpuset.cpus`: Numerical result out of range",
			want: `unable to apply cgroup configuration: failed to write "100-101": write /sys/fs/cgroup/cpuset/x/cpuset.cpus: ` +
				"numerical result out of range",
			wantCrun: "writing file `cpuset.cpus`: Numerical result out of range",
		},
		{
			name: "memory limit too low", command: "sh",
			runc:     runc + "error during container init: error setting cgroup config for procHooks process: unable to set memory limit to 1 (current usage: 2121728, peak usage: 2256896)",
			crun:     create + "OOM: the memory limit could be too low: read from sync socket: Connection reset by peer",
			want:     "error setting cgroup config for procHooks process: unable to set memory limit to 1 (current usage: 2121728, peak usage: 2256896)",
			wantCrun: "OOM: the memory limit could be too low: read from sync socket: Connection reset by peer",
		},
		{
			name: "killed at its start", command: "sh", passes: true,
			runc:     runc + "error during container init: %!w(<nil>)",
			crun:     create + "read from sync socket: Connection reset by peer",
			want:     "error during container init",
			wantCrun: "read from sync socket: Connection reset by peer",
		},
		{
			name: "killed between its creation and its start", command: "sh", passes: true,
			runc: "OCI runtime start failed: cannot start a container that has stopped",
			crun: "OCI runtime start failed: container `c-0` is not running",
			want: "cannot start a container that has stopped", wantCrun: "container `c-0` is not running",
		},
		{
			name: "no more processes", command: "/bin/sh", passes: true,
			runc: create + "runc create failed: unable to start container process: exec: \"/bin/sh\": resource temporarily unavailable",
			crun: create + "clone: Resource temporarily unavailable",
			want: `exec: "/bin/sh": resource temporarily unavailable`, wantCrun: "clone: Resource temporarily unavailable",
		},
		{
			name: "program that is being written", command: "/bin/x", passes: true,
			runc: runc + "exec /bin/x: text file busy",
			crun: create + "exec: Text file busy",
			want: "exec /bin/x: text file busy", wantCrun: `exec: "/bin/x": text file busy`,
		},
		{
			name: "no cgroup below one that is full", command: "sh", passes: true,
			runc:     runc + "unable to apply cgroup configuration: mkdir /sys/fs/cgroup/memory/x/c-0: cannot allocate memory",
			crun:     create + "creating cgroup directory `/sys/fs/cgroup/memory/x/c-0`: Cannot allocate memory",
			want:     "unable to apply cgroup configuration: mkdir /sys/fs/cgroup/memory/x/c-0: cannot allocate memory",
			wantCrun: "creating cgroup directory `/sys/fs/cgroup/memory/x/c-0`: Cannot allocate memory",
		},
		{
			name: "out of memory", command: "sh",
			runc: runc + "container init was OOM-killed (memory limit too low?)",
			crun: create + "OOM: the memory limit could be too low: read from the init process",
			want: "container init was OOM-killed (memory limit too low?)", wantCrun: "OOM: the memory limit could be too low: read from the init process",
		},
		{
			name: "process namespace whose first process has ended", command: "sh", passes: true,
			runc: runc + "can't get final child's PID from pipe: EOF", crun: create + "fork: Cannot allocate memory",
			want: "can't get final child's PID from pipe: EOF", wantCrun: "fork: Cannot allocate memory",
		},
		{
			name: "systemd does not answer", command: "sh", passes: true,
			runc:     runc + `unable to apply cgroup configuration: unable to start unit "c.scope" (properties []): Message recipient disconnected from message bus without replying`,
			crun:     create + "sd-bus call: Transport endpoint is not connected",
			want:     `unable to apply cgroup configuration: unable to start unit "c.scope" (properties []): Message recipient disconnected from message bus without replying`,
			wantCrun: "sd-bus call: Transport endpoint is not connected",
		},
		{
			name: "the runtime was killed", passes: true,
			runc: "OCI runtime create failed: runc: exit status 137", crun: "OCI runtime create failed: crun: exit status 137",
			want: "runc: exit status 137", wantCrun: "crun: exit status 137",
		},
		{
			name: "killed while it was made", command: "sh", passes: true,
			runc: runc + "can't copy bootstrap data to pipe: write init-p: broken pipe", crun: create + "read from the init process",
			want: "can't copy bootstrap data to pipe: write init-p: broken pipe", wantCrun: "read from the init process",
		},
		{
			name: "interrupted", passes: true,
			runc: "OCI runtime create failed: runc: context deadline exceeded", want: "runc: context deadline exceeded",
		},
		{
			name: "killed without a log", passes: true,
			runc: create + "unable to retrieve OCI runtime error (open /s/log.json: no such file or directory): runc: signal: killed",
			want: "unable to retrieve OCI runtime error (open /s/log.json: no such file or directory): runc: signal: killed",
		},
		{
			name: "of a try that was killed", passes: true,
			runc: create + "runc create failed: container with given ID already exists", crun: create + "container `c-0` already exists",
			want: "container with given ID already exists", wantCrun: "container `c-0` already exists",
		},
		{
			name: "cgroup that is being removed", passes: true,
			runc: runc + `unable to apply cgroup configuration: failed to write 1: write /sys/fs/cgroup/x/cgroup.procs: device or resource busy`,
			want: "unable to apply cgroup configuration: failed to write 1: write /sys/fs/cgroup/x/cgroup.procs: device or resource busy",
		},
		{
			name: "dangling link as the working directory", command: "sh",
			runc: runc + "error during container init: mkdir /opt/x: file exists", want: "mkdir /opt/x: file exists",
		},
		{
			name: "no space for its state", command: "sh",
			runc:     runc + "unable to store init state: %!w(<nil>): write /state/runc: no space left on device",
			crun:     create + "write `/state/status`: No space left on device",
			want:     "unable to store init state: write /state/runc: no space left on device",
			wantCrun: "write `/state/status`: No space left on device",
		},
		{
			name: "missing in a running container", command: "nope", permanent: true,
			runc: exec + `exec: "nope": executable file not found in $PATH`,
			crun: inCrun + "executable file `nope` not found in $PATH: No such file or directory",
			want: `exec: "nope": executable file not found in $PATH`,
		},
		{
			name: "not executable in a running container", command: "/etc/passwd", permanent: true,
			runc: exec + `exec: "/etc/passwd": permission denied`,
			crun: inCrun + "open executable: Permission denied",
			want: `exec: "/etc/passwd": permission denied`,
		},
		{
			name: "of another format in a running container", command: "/bin/x", permanent: true,
			runc:     exec + "exec /bin/x: exec format error",
			crun:     inCrun + "exec: Exec format error",
			want:     "exec /bin/x: exec format error",
			wantCrun: `exec: "/bin/x": exec format error`,
		},
		{
			name: "something else", passes: true,
			runc: "failed to start shim: something else", crun: "failed to start shim: something else",
			want: "failed to start shim: something else",
		},
	} {
		check := func(text, want string) {
			got := RuntimeMessage(errors.New(text+": unknown"), tc.command)
			if got != want {
				t.Errorf("%s: %q, want %q", tc.name, got, want)
			}
			if IsPermanentMessage(got) != tc.permanent {
				t.Errorf("%s: %q: permanent %v", tc.name, got, !tc.permanent)
			}
			if ofStart := !strings.Contains(text, "exec failed"); IsRefusal(errors.New(text)) != (ofStart && !tc.passes) {
				t.Errorf("%s: %q: refused %v", tc.name, got, tc.passes)
			}
		}
		check(tc.runc, tc.want)
		if tc.crun != "" {
			check(tc.crun, cmp.Or(tc.wantCrun, tc.want))
		}
	}
}

func TestUnusableIsErrUnusable(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := Unusablef("connecting: %w", cause)
	if !errors.Is(err, ErrUnusable) || !errors.Is(err, cause) || err.Error() != "connecting: cause" {
		t.Errorf("%v", err)
	}
}

func TestExecAdvice(t *testing.T) {
	t.Parallel()
	const (
		needs  = "/x.sh exists, but not what it needs to run: "
		format = "/x.sh is neither a program for this machine nor a script that begins with #!"
	)
	for in, want := range map[string]string{
		"exec /x.sh: no such file or directory": needs,
		"exec /x.sh: exec format error":         format,
		`{"msg":"exec container process (missing dynamic library?) ` + "`/x.sh`" + `: No such file or directory","level":"error"}`: needs,
		`{"msg":"exec container process ` + "`/x.sh`" + `: Exec format error","level":"error"}`:                                    format,
		`exec: "/x.sh": stat /x.sh: no such file or directory`:                                                                     "",
		`exec: "x": executable file not found in $PATH`:                                                                            "",
		"exec /x.sh: text file busy": "",
		"":                           "",
	} {
		if got := ExecAdvice(in); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCommandExitCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want    int
		message string
	}{
		{127, `OCI runtime exec failed: exec failed: unable to start container process: exec: "nope": executable file not found in $PATH`},
		{127, `OCI runtime exec failed: exec failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory`},
		{126, `exec failed: unable to start container process: exec: "/etc": permission denied`},
		{126, `OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc": is a directory`},
		{126, `OCI runtime exec failed: exec /a.out: exec format error`},
		{127, "executable file `nope` not found in $PATH: No such file or directory"},
		{126, "open executable: Permission denied"},
		{0, `container "main" of pod "default/web" is not running`},
		{0, `connecting to its shim: dial unix /run/x: connect: no such file or directory`},
		{0, `connecting to /run/containerd.sock: permission denied`},
	} {
		if code, ok := CommandExitCode(errors.New(test.message)); code != test.want || ok != (test.want != 0) {
			t.Errorf("%s: %d, %v, want %d", test.message, code, ok, test.want)
		}
	}
}
