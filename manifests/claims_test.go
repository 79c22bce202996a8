package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const claimDoc = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}%s}\n"

func claimOf(more string) string { return fmt.Sprintf(claimDoc, more) }

func persistentVolume(name, spec string) string {
	return "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + ", labels: {tier: gold}}\nspec: {" + spec + "}\n"
}

func claimPod() string {
	return pod("p", "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n")
}

// TestClaims tests which volume a claim gets, "" for a directory, or why it gets none.
func TestClaims(t *testing.T) {
	t.Parallel()
	const (
		rwo   = "accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: /srv}"
		small = "capacity: {storage: 1Gi}, " + rwo
		fits  = "capacity: {storage: 10Gi}, " + rwo
		big   = "capacity: {storage: 50Gi}, " + rwo
		field = `f:5: spec.volumes[0].persistentVolumeClaim.claimName: PersistentVolumeClaim "data": `
	)
	for _, tt := range []struct {
		name string
		in   string
		want string // the volume
		bad  string
	}{
		{name: "a directory", in: claimOf("")},
		{name: "the smallest that fits", in: claimOf("") + persistentVolume("a-big", big) + persistentVolume("b-fits", fits) + persistentVolume("c-small", small), want: "b-fits"},
		{
			name: "the smallest, whatever else it can do",
			in:   claimOf("") + persistentVolume("big", big) + persistentVolume("both", strings.Replace(fits, "ReadWriteOnce", "ReadWriteOnce, ReadOnlyMany", 1)),
			want: "both",
		},
		{name: "none is large enough", in: claimOf("") + persistentVolume("small", small)},
		{name: "of another class", in: claimOf("") + persistentVolume("fits", fits+", storageClassName: fast")},
		{name: "of the same class", in: claimOf(", storageClassName: fast") + persistentVolume("plain", fits) + persistentVolume("quick", big+", storageClassName: fast"), want: "quick"},
		{name: "reserved for another claim", in: claimOf("") + persistentVolume("fits", fits+", claimRef: {namespace: other, name: data}")},
		{name: "reserved for this claim", in: claimOf("") + persistentVolume("fits", fits) + persistentVolume("mine", big+", storageClassName: x, claimRef: {namespace: default, name: data}"), want: "mine"},
		{name: "with the labels", in: claimOf(", selector: {matchLabels: {tier: gold}}") + persistentVolume("fits", fits), want: "fits"},
		{name: "by name", in: claimOf(", volumeName: big") + persistentVolume("fits", fits) + persistentVolume("big", big), want: "big"},
		{
			name: "by the name of a missing one", in: claimOf(", volumeName: gone"),
			bad: field + `PersistentVolume "gone" is not in the input (add it to the input, or leave out spec.volumeName)`,
		},
		{name: "by name, too small", in: claimOf(", volumeName: small") + persistentVolume("small", small), bad: field + `Cannot bind to requested volume "small": requested PV is too small`},
		{
			name: "by name, of another class", in: claimOf(", volumeName: fits") + persistentVolume("fits", fits+", storageClassName: x"),
			bad: field + `Cannot bind to requested volume "fits": storageClassName does not match`,
		},
		{
			name: "by name, with other access modes", in: claimOf(", volumeName: v") + persistentVolume("v", strings.Replace(fits, "ReadWriteOnce", "ReadOnlyMany", 1)),
			bad: field + `Cannot bind to requested volume "v": incompatible accessMode`,
		},
		{
			name: "by name, reserved for another", in: claimOf(", volumeName: fits") + persistentVolume("fits", fits+", claimRef: {namespace: other, name: data}"),
			bad: field + `volume "fits" already bound to a different claim.`,
		},
		{
			name: "none may be provisioned", in: claimOf(`, storageClassName: ""`),
			bad: field + `no PersistentVolume in the input matches, and storageClassName "" prevents provisioning one (add one, or leave out storageClassName)`,
		},
		{
			name: "no labels", in: claimOf(", selector: {matchLabels: {tier: lead}}") + persistentVolume("fits", fits),
			bad: field + `no PersistentVolume in the input matches, and a claim with a selector is not provisioned (add one, or leave out the selector)`,
		},
		{
			name: "by a driver", in: claimOf("") + persistentVolume("cloud", strings.Replace(fits, "hostPath: {path: /srv}", "csi: {driver: d.example.com, volumeHandle: h}", 1)),
			bad: field + `PersistentVolume "cloud" needs a storage driver (mount it on the host and make it a hostPath or local volume)`,
		},
		{name: "block", in: claimOf(", volumeMode: Block"), bad: `f:13: spec.volumeMode: "Block" is not supported: no storage driver here attaches raw devices (use Filesystem)`},
		{
			name: "copy", in: claimOf(", dataSource: {kind: PersistentVolumeClaim, name: other}"),
			bad: "f:13: spec.dataSource: not supported: nothing here copies a claim or restores a snapshot (fill the claim's directory, or use an init container)",
		},
		{
			name: "options of a hostPath volume", in: claimOf("") + persistentVolume("fits", fits+", mountOptions: [ro]"),
			bad: "f:18: spec.mountOptions: Mount options are not supported for volume type (only nfs is mounted here)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir("f", claimPod()+tt.in))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.bad {
				t.Errorf("error %s, want %s", got, tt.bad)
			}
			if c, ok := set.Claim("default", "data"); tt.bad == "" && (!ok || c.Spec.VolumeName != tt.want) {
				t.Errorf("volume %q, want %q", c.Spec.VolumeName, tt.want)
			}
		})
	}
}

// TestClaimTemplates: a claim for each pod of a StatefulSet, and one for each pod with an
// ephemeral volume; those of the input are used, but not for an ephemeral volume.
func TestClaimTemplates(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", workloadDoc("apps/v1", "StatefulSet", "  replicas: 2\n  serviceName: s\n  selector: {matchLabels: {app: x}}\n"+
		"  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]\n  TEMPLATE\n")+
		strings.Replace(strings.Replace(claimOf(""), "name: data", "name: d-w-1, namespace: ns", 1), "ReadWriteOnce", "ReadWriteOncePod", 1))
	for i, want := range []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOncePod} {
		name := fmt.Sprintf("d-w-%d", i)
		c, ok := set.Claim("ns", name)
		if !ok || c.Spec.AccessModes[0] != want {
			t.Errorf("claim %s: %+v, want %s", name, c, want)
		}
		if v := set.Pods[i].Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim.ClaimName != name {
			t.Errorf("volumes of pod %d: %+v", i, v)
		}
	}
	const tmp = "  volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]\n"
	set = mustRead(t, "f", pod("p", tmp))
	if c, ok := set.Claim("default", "p-tmp"); !ok || c.Labels["a"] != "b" || len(set.Claims()) != 1 {
		t.Errorf("claim of an ephemeral volume: %+v", c)
	}
	_, err := Read(dir("f", pod("p", tmp)+strings.Replace(claimOf(""), "name: data", "name: p-tmp", 1)))
	want := []string{`f:5: spec.volumes[0].name: PVC "default/p-tmp" was not created for pod "default/p" (pod is not owner) (rename the volume or the claim)`}
	if d := cmp.Diff(want, lines(err)); d != "" {
		t.Error(d)
	}
}

// TestClaimsCountForTheUID: a pod with other storage is another pod.
func TestClaimsCountForTheUID(t *testing.T) {
	t.Parallel()
	plain := mustRead(t, "f", claimPod()+claimOf("")).Pods[0].UID
	volume := "capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /srv}"
	if again := mustRead(t, "f", claimPod()+claimOf("")).Pods[0].UID; again != plain {
		t.Error("the same claim makes another pod")
	}
	if bound := mustRead(t, "f", claimPod()+claimOf("")+persistentVolume("v", volume)).Pods[0].UID; bound == plain {
		t.Error("a claim that is bound now makes the same pod")
	}
}
