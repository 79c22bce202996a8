package failure

import (
	"cmp"
	"errors"
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
			name: "source of a mount missing", command: "sh",
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
			name: "killed at its start", command: "sh",
			runc:     runc + "error during container init: %!w(<nil>)",
			crun:     create + "read from sync socket: Connection reset by peer",
			want:     "error during container init",
			wantCrun: "read from sync socket: Connection reset by peer",
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
			name: "something else",
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
