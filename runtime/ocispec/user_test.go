package ocispec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

const (
	testPasswd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/app:/bin/sh\nodd:x:2000:0::/:/bin/sh\nhuge:x:4294967295:0::/:\n"
	testGroup  = "root:x:0:\nwheel:x:10:root,app\napp:x:1001:\nlogs:x:50:app,other\nodd:x:2001:odd\n"
)

func TestProcessUser(t *testing.T) {
	t.Parallel()
	strict := v1.SupplementalGroupsPolicyStrict
	who := `(pod: "web_shop(uid-1)", container: c)`
	tests := []struct {
		name    string
		image   string
		bare    bool // an image without /etc/passwd
		pod     *v1.PodSecurityContext
		own     *v1.SecurityContext
		want    specs.User
		reason  string
		wantErr string
	}{
		{name: "unset", want: specs.User{AdditionalGids: []uint32{0, 10}}},
		{name: "unset, no passwd", bare: true, want: specs.User{AdditionalGids: []uint32{0}}},
		{name: "the image's name", image: "app", want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50}}},
		{name: "the image's number", image: "1000", want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50}}},
		{name: "the image's number that passwd does not know", image: "77", want: specs.User{UID: 77, AdditionalGids: []uint32{0}}},
		{name: "the image's group is not Kubernetes' business", image: "77:88", want: specs.User{UID: 77, AdditionalGids: []uint32{0}}},
		{name: "the image's name with a group", image: "app:wheel", want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50}}},
		{name: "the group of the same name is not supplementary", image: "odd", want: specs.User{UID: 2000, AdditionalGids: []uint32{0}}},
		{
			name: "the pod's user", image: "app", pod: &v1.PodSecurityContext{RunAsUser: new(int64(500))},
			want: specs.User{UID: 500, AdditionalGids: []uint32{0}},
		},
		{
			name: "the container's user wins over the pod's", pod: &v1.PodSecurityContext{RunAsUser: new(int64(500)), RunAsGroup: new(int64(600))},
			own:  &v1.SecurityContext{RunAsUser: new(int64(1000))},
			want: specs.User{UID: 1000, GID: 600, AdditionalGids: []uint32{600, 10, 50}},
		},
		{
			name: "groups", image: "app",
			pod:  &v1.PodSecurityContext{FSGroup: new(int64(5)), SupplementalGroups: []int64{6, 10}},
			want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50, 5, 6}},
		},
		{
			name: "strict groups", image: "app",
			pod:  &v1.PodSecurityContext{FSGroup: new(int64(5)), SupplementalGroups: []int64{6, 10}, SupplementalGroupsPolicy: &strict},
			want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 5, 6, 10}},
		},
		{name: "an unknown name", image: "ghost", reason: failure.ReasonCreateError, wantErr: `no user "ghost" in /etc/passwd of image "docker.io/library/web:1"`},
		{
			name: "a name without passwd", image: "app", bare: true, reason: failure.ReasonCreateError,
			wantErr: `no user "app" in /etc/passwd of image "docker.io/library/web:1"`,
		},
		{
			name: "a number too big", image: "99999999999999999999", reason: failure.ReasonCreateError,
			wantErr: "the user of image docker.io/library/web:1: id 9223372036854775807 is out of range 0-2147483647",
		},
		{
			name: "a name with a number too big", image: "huge", reason: failure.ReasonCreateError,
			wantErr: "user huge: id 4294967295 is out of range 0-2147483647",
		},
		{
			name: "non-root user", own: &v1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(7))},
			want: specs.User{UID: 7, AdditionalGids: []uint32{0}},
		},
		{name: "non-root by the image", image: "7", own: &v1.SecurityContext{RunAsNonRoot: new(true)}, want: specs.User{UID: 7, AdditionalGids: []uint32{0}}},
		{
			name: "the container allows root again", pod: &v1.PodSecurityContext{RunAsNonRoot: new(true)},
			own: &v1.SecurityContext{RunAsNonRoot: new(false)}, bare: true, want: specs.User{AdditionalGids: []uint32{0}},
		},
		{
			name: "root against the pod's will", pod: &v1.PodSecurityContext{RunAsNonRoot: new(true)},
			own: &v1.SecurityContext{RunAsUser: new(int64(0))}, reason: failure.ReasonConfigError,
			wantErr: "container's runAsUser breaks non-root policy " + who,
		},
		{
			name: "an image without a user", own: &v1.SecurityContext{RunAsNonRoot: new(true)}, reason: failure.ReasonConfigError,
			wantErr: "container has runAsNonRoot and image will run as root " + who,
		},
		{
			name: "an image with the user root", image: "0:0", own: &v1.SecurityContext{RunAsNonRoot: new(true)}, reason: failure.ReasonConfigError,
			wantErr: "container has runAsNonRoot and image will run as root " + who,
		},
		{
			name: "an image with a name", image: "app", own: &v1.SecurityContext{RunAsNonRoot: new(true)}, reason: failure.ReasonConfigError,
			wantErr: "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root " + who,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := testContext(v1.Container{Name: "c", SecurityContext: tt.own})
			c.Pod.Spec.SecurityContext, c.Image.User = tt.pod, tt.image
			if !tt.bare {
				c.Image.Passwd, c.Image.Group = []byte(testPasswd), []byte(testGroup)
			}
			s := SecurityContext(c.Pod, &c.Pod.Spec.Containers[0])
			got, err := processUser(c, &c.Pod.Spec.Containers[0], &s)
			if tt.wantErr != "" {
				wantConfigError(t, err, tt.reason, tt.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCommandUser(t *testing.T) {
	t.Parallel()
	for ref, tt := range map[string]struct {
		want specs.User
		err  string
	}{
		"app":        {want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50}}},
		"1000":       {want: specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{1001, 10, 50}}},
		"77":         {want: specs.User{UID: 77, AdditionalGids: []uint32{0}}},
		"app:wheel":  {want: specs.User{UID: 1000, GID: 10, AdditionalGids: []uint32{10}}},
		"77:88":      {want: specs.User{UID: 77, GID: 88, AdditionalGids: []uint32{88}}},
		"nobody":     {err: `no user "nobody" in /etc/passwd of image "box"`},
		"app:nobody": {err: `no group "nobody" in /etc/group of image "box"`},
		"app:-1":     {err: "group: id -1 is out of range 0-2147483647"},
	} {
		t.Run(ref, func(t *testing.T) {
			t.Parallel()
			got, err := CommandUser(engine.Image{Ref: "box", Passwd: []byte(testPasswd), Group: []byte(testGroup)}, ref)
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("user (-want +got):\n%s", diff)
			}
		})
	}
}
