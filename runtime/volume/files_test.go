package volume

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFileVolumes(t *testing.T) {
	t.Parallel()
	yes := true
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	tests := []struct {
		name    string
		source  v1.VolumeSource
		want    []string
		wantErr string
	}{
		{
			name:   "configMap with all its keys",
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("conf")}},
			want:   []string{"a 0644 one", "b 0644 two", "bin 0644 \x00\x01\x02"},
		},
		{
			name: "configMap items, paths and modes",
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("conf"), DefaultMode: new(int32(0o400)),
				Items: []v1.KeyToPath{{Key: "a", Path: "etc/deep/a.conf"}, {Key: "bin", Path: "run", Mode: new(int32(0o755))}},
			}},
			want: []string{"etc/deep/a.conf 0400 one", "run 0755 \x00\x01\x02"},
		},
		{
			name:    "configMap that is not there",
			source:  v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("none")}},
			wantErr: `setting up volume "v": configmap "none" not found`,
		},
		{
			name:   "optional configMap that is not there",
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("none"), Optional: &yes}},
		},
		{
			name: "configMap key that does not exist",
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("conf"), Items: []v1.KeyToPath{{Key: "z", Path: "z"}},
			}},
			wantErr: `setting up volume "v": configmap references non-existent config key: z`,
		},
		{
			name: "optional configMap key that does not exist",
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("conf"), Items: []v1.KeyToPath{{Key: "z", Path: "z"}, {Key: "a", Path: "a"}}, Optional: &yes,
			}},
			want: []string{"a 0644 one"},
		},
		{
			name:   "secret",
			source: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key", DefaultMode: new(int32(0o440))}},
			want:   []string{"password 0440 s3cret", "user 0440 me"},
		},
		{
			name: "secret key that does not exist",
			source: v1.VolumeSource{Secret: &v1.SecretVolumeSource{
				SecretName: "key", Items: []v1.KeyToPath{{Key: "z", Path: "z"}},
			}},
			wantErr: `setting up volume "v": references non-existent secret key: z`,
		},
		{
			name: "downwardAPI",
			source: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "notes", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
				{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}, Mode: new(int32(0o600))},
				{Path: "app", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}},
				{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}},
				{Path: "milli", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
			}}},
			want: []string{
				"app 0644 web", "cpu 0644 2", "labels 0644 app=\"web\"\ntier=\"front\"", "milli 0644 1500", "name 0600 web",
				"notes 0644 note=\"a \\\"b\\\"\\nc\"",
			},
		},
		{
			name: "downwardAPI of a field that volumes do not have",
			source: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "ip", FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}},
			}}},
			wantErr: `setting up volume "v": file "ip": unsupported fieldPath: status.podIP`,
		},
		{
			name: "projected",
			source: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				DefaultMode: new(int32(0o444)),
				Sources: []v1.VolumeProjection{
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("conf"), Items: []v1.KeyToPath{{Key: "a", Path: "all/a"}}}},
					{Secret: &v1.SecretProjection{LocalObjectReference: ref("key"), Items: []v1.KeyToPath{{Key: "user", Path: "all/user"}}}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
						{Path: "all/name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
					}}},
				},
			}},
			want: []string{"all/a 0444 one", "all/name 0444 web", "all/user 0444 me"},
		},
		{
			name: "projected token",
			source: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			}}},
			wantErr: `setting up volume "v": unsupported source of a projected volume`,
		},
		{
			name:    "claim without a directory for claims",
			source:  v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			wantErr: `setting up volume "v": persistentVolumeClaim "data": no directory for claims is set`,
		},
		{
			name:    "claim that does not exist",
			source:  v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}},
			wantErr: `setting up volume "v": persistentvolumeclaim "gone" not found`,
		},
		{
			name:    "claim of an ephemeral volume that does not exist",
			source:  v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}},
			wantErr: `setting up volume "v": persistentvolumeclaim "web-v" not found`,
		},
		{
			name:    "iscsi",
			source:  v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}},
			wantErr: `setting up volume "v": unsupported volume type`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, _ := testManager(t)
			v := volume("v", tt.source)
			pod := testPod(v)
			for range 2 { // safe to repeat
				err := m.Setup(t.Context(), pod)
				if tt.wantErr != "" {
					var permanent interface{ Permanent() bool }
					if err == nil || err.Error() != tt.wantErr || !errors.As(err, &permanent) || !permanent.Permanent() {
						t.Fatalf("error %v, want a permanent %s", err, tt.wantErr)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, tree(t, m.path(pod, &v))); diff != "" {
					t.Error(diff)
				}
			}
			if err := m.Teardown(t.Context(), pod); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(m.dir(pod))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if err := m.Teardown(t.Context(), pod); err != nil {
				t.Errorf("a second Teardown: %v", err)
			}
		})
	}
}
