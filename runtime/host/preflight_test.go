package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	withSeccomp    = `{"mountOptions":["ro","rro"],"linux":{"seccomp":{"enabled":true}}}`
	withoutSeccomp = `{"mountOptions":["ro"],"linux":{"seccomp":{"enabled":false}}}`
	// Runc 1.5 without the build tag leaves the section out.
	silent = `{"mountOptions":["ro"],"linux":{}}`
)

func TestPreflight(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	enabled, possible := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible
	pod := func(change func(s *v1.PodSpec)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
		p.Spec.SecurityContext = &v1.PodSecurityContext{}
		change(&p.Spec)
		return p
	}
	seccomp := func(kind v1.SeccompProfileType) *v1.Pod {
		return pod(func(s *v1.PodSpec) { s.SecurityContext.SeccompProfile = &v1.SeccompProfile{Type: kind} })
	}
	appArmor := func(name string) *v1.Pod {
		return pod(func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Name: "first", SecurityContext: &v1.SecurityContext{
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name},
			}}}
		})
	}
	recursive := func(mode v1.RecursiveReadOnlyMode) *v1.Pod {
		return pod(func(s *v1.PodSpec) {
			s.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", ReadOnly: true, RecursiveReadOnly: &mode}}
		})
	}
	users := pod(func(s *v1.PodSpec) { s.HostUsers = &no })
	namespaces := func(most string) fstest.MapFS {
		return fstest.MapFS{"proc/sys/user/max_user_namespaces": {Data: []byte(most + "\n")}}
	}
	directories := func(a, b fs.FileMode) fstest.MapFS {
		files := namespaces("100")
		files["a"], files["a/b"] = &fstest.MapFile{Mode: fs.ModeDir | a}, &fstest.MapFile{Mode: fs.ModeDir | b}
		return files
	}
	loaded := fstest.MapFS{
		"sys/module/apparmor/parameters/enabled": {Data: []byte("Y\n")},
		loadedProfiles:                           {Data: []byte("own-2 (enforce)\nown (complain)\n")},
	}
	profile := func(name string) *v1.Pod {
		return pod(func(s *v1.PodSpec) {
			s.Containers[0].SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}}
		})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.json"), []byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		pod     *v1.Pod
		files   fstest.MapFS
		runtime string
		users   error
		rootfs  string
		want    string
		// byDefault says that containers without a profile get the default one.
		byDefault bool
		// unconfined says that the engine cannot apply AppArmor profiles.
		unconfined bool
	}{
		{name: "needs nothing", pod: pod(func(*v1.PodSpec) {}), runtime: "none"},
		{name: "users of the host", pod: pod(func(s *v1.PodSpec) { s.HostUsers = &yes }), users: errors.New("cannot")},
		{name: "users", pod: users, files: namespaces("100")},
		{name: "users, no namespaces", pod: users, want: "spec.hostUsers: false: the kernel has no user namespaces"},
		{
			name: "users, namespaces off", pod: users, files: namespaces("0"),
			want: "spec.hostUsers: false: the kernel allows no user namespaces: sysctl user.max_user_namespaces is 0",
		},
		{name: "users, open directories", pod: users, files: directories(0o711, 0o755), rootfs: "/a/b/new"},
		{
			name: "users, a closed directory", pod: users, files: directories(0o700, 0o711), rootfs: "/a/b/new",
			want: "spec.hostUsers: false: the root file systems of containers are in /a/b/new, and the users of a pod, who are others on this machine, " +
				"may not search /a: allow it (chmod o+x /a) or choose another --state",
		},
		{
			name: "users, closed directories", pod: users, files: directories(0o750, 0o776), rootfs: "/a/b",
			want: "spec.hostUsers: false: the root file systems of containers are in /a/b, and the users of a pod, who are others on this machine, " +
				"may not search /a /a/b: allow it (chmod o+x /a /a/b) or choose another --state",
		},
		{name: "users of the host, a closed directory", pod: pod(func(*v1.PodSpec) {}), files: directories(0o700, 0o700), rootfs: "/a/b"},
		{name: "users, old engine", pod: users, files: namespaces("100"), users: errors.New("too old"), want: "spec.hostUsers: false: too old"},
		{name: "seccomp", pod: seccomp(v1.SeccompProfileTypeRuntimeDefault), runtime: withSeccomp},
		{name: "seccomp unconfined", pod: seccomp(v1.SeccompProfileTypeUnconfined), runtime: withoutSeccomp},
		{
			name: "no seccomp", pod: seccomp(v1.SeccompProfileTypeRuntimeDefault), runtime: withoutSeccomp,
			want: `container "main": seccomp profile RuntimeDefault: the OCI runtime was built without seccomp`,
		},
		{
			name: "no word of seccomp", pod: seccomp(v1.SeccompProfileTypeLocalhost), runtime: silent,
			want: `container "main": seccomp profile Localhost: the OCI runtime was built without seccomp`,
		},
		{
			name: "no seccomp by default", pod: pod(func(*v1.PodSpec) {}), byDefault: true, runtime: withoutSeccomp,
			want: `container "main": seccomp profile RuntimeDefault: the OCI runtime was built without seccomp`,
		},
		{name: "seccomp by default", pod: pod(func(*v1.PodSpec) {}), byDefault: true, runtime: withSeccomp},
		{name: "unconfined in spite of a default", pod: seccomp(v1.SeccompProfileTypeUnconfined), byDefault: true, runtime: withoutSeccomp},
		{name: "seccomp profile", pod: profile("own.json"), runtime: withSeccomp},
		{
			name: "no such seccomp profile", pod: profile("sub/gone.json"), runtime: withSeccomp,
			want: `container "main": reading seccomp profile: open ` + dir + `/sub/gone.json: no such file or directory`,
		},
		{name: "too old to say", pod: seccomp(v1.SeccompProfileTypeRuntimeDefault), runtime: "none"},
		{name: "recursive", pod: recursive(enabled), runtime: withSeccomp},
		{name: "recursive if possible", pod: recursive(possible), runtime: silent},
		{
			name: "not recursive", pod: recursive(enabled), runtime: silent,
			want: `container "main": volume "v" requested recursive read-only mode, but it is not supported by the runtime`,
		},
		{name: "profile", pod: appArmor("own"), files: loaded},
		{name: "profile without AppArmor", pod: appArmor("own"), unconfined: true},
		{
			name: "profile without a parser", pod: appArmor("own"), files: loaded, unconfined: true,
			want: `container "first": AppArmor profile Localhost: /sys/kernel/security/apparmor or the program apparmor_parser does not exist`,
		},
		{
			name: "no such profile", pod: appArmor("ow"), files: loaded,
			want: `container "first": AppArmor profile "ow" is not loaded: load it with apparmor_parser`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Preflight{
				Files: tt.files, AppArmor: !tt.unconfined, SeccompDefault: tt.byDefault, SeccompDir: dir, RootfsDir: tt.rootfs,
				CanMapUsers: func(context.Context) error { return tt.users },
				RuntimeFeatures: func(_ context.Context, name string) ([]byte, error) {
					if tt.runtime == "none" || name != "" {
						return nil, errors.New("no such command")
					}
					return []byte(tt.runtime), nil
				},
			}
			want := map[types.UID]string{}
			if tt.want != "" {
				want["u"] = tt.want
			}
			if diff := cmp.Diff(want, p.Check(t.Context(), []*v1.Pod{tt.pod})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFeaturesAreReadOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	p := &Preflight{RuntimeFeatures: func(context.Context, string) ([]byte, error) { calls++; return []byte("no JSON"), nil }}
	for range 3 {
		if f := p.Features(t.Context(), &v1.Pod{}); !f.Seccomp || f.RecursiveReadOnly {
			t.Errorf("%+v", f)
		}
	}
	if calls != 1 {
		t.Errorf("the features were read %d times", calls)
	}
}
