package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNodeFiles: a volume of files on a directory in which a node mounts files of its own has a warning,
// unless it certainly is none.
func TestNodeFiles(t *testing.T) {
	t.Parallel()
	const (
		objects = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {hosts: '', hostname: ''}\n---\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: full}\ndata: {hosts: '', hostname: '', resolv.conf: ''}\n---\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n" +
			"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: r}\nhandler: h\n---\n"
		configMap = "configMap: {name: m}"
	)
	for _, tt := range []struct{ name, volume, mount, more, want string }{
		{"missing", configMap, "mountPath: /etc", "", "spec.containers[0].volumeMounts[0].mountPath: " +
			`volume "v" is read-only and has no resolv.conf: runc cannot mount /etc/resolv.conf in it (mount only single files of the volume, with subPath)`},
		{"slashes", "secret: {secretName: s}", "mountPath: //etc/", "", "spec.containers[0].volumeMounts[0].mountPath: " +
			`volume "v" is read-only and has no hostname: runc cannot mount /etc/hostname in it (mount only single files of the volume, with subPath)`},
		{"message", "downwardAPI: {items: [{path: log/x, fieldRef: {fieldPath: metadata.name}}]}", "mountPath: /dev", "", "spec.containers[0].volumeMounts[0].mountPath: " +
			`volume "v" is read-only and has no termination-log: runc cannot mount /dev/termination-log in it (set terminationMessagePath to a path outside of the volume)`},
		{"items", "configMap: {name: full, items: [{key: hosts, path: hosts}, {key: hosts, path: hostname}]}", "mountPath: /etc", "", "spec.containers[0].volumeMounts[0].mountPath: " +
			`volume "v" is read-only and has no resolv.conf: runc cannot mount /etc/resolv.conf in it (mount only single files of the volume, with subPath)`},
		{"projected", "projected: {sources: [{configMap: {name: m}}, {secret: {name: s}}]}", "mountPath: /etc", "", "spec.containers[0].volumeMounts[0].mountPath: " +
			`volume "v" is read-only and has no resolv.conf: runc cannot mount /etc/resolv.conf in it (mount only single files of the volume, with subPath)`},
		{"all there", "configMap: {name: full}", "mountPath: /etc", "", ""},
		{"all there together", "projected: {sources: [{configMap: {name: m}}, {configMap: {name: full, items: [{key: hosts, path: resolv.conf}]}}]}", "mountPath: /etc", "", ""},
		{"mounted by the pod", configMap, "mountPath: /etc", ", {name: e, mountPath: /etc/resolv.conf}", ""},
		{"another runtime", configMap, "mountPath: /etc}]}]\n  runtimeClassName: r #", "", ""},
		{"a file", configMap, "mountPath: /etc, subPath: hosts", "", ""},
		{"elsewhere", configMap, "mountPath: /etc/app", "", ""},
		{"above, where a directory may be", configMap, "mountPath: /data}], terminationMessagePath: /data/deep/log, env: [{name: x", "", ""},
		{"writable", "emptyDir: {}", "mountPath: /etc", "", ""},
		{"what others may make", "emptyDir: {}", "mountPath: /etc, readOnly: true", "", ""},
		{"of the host", "hostPath: {path: /etc}", "mountPath: /etc, readOnly: true", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := objects + "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  volumes: [{name: v, " + tt.volume + "}, {name: e, emptyDir: {}}]\n" +
				"  containers: [{name: c, image: i, volumeMounts: [{name: v, " + tt.mount + "}" + tt.more + "]}]\n"
			set, err := Read(dir("f", in))
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			if tt.want != "" {
				want = []string{"f:25: " + tt.want}
			}
			for _, w := range set.Warnings {
				got = append(got, w.String())
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
