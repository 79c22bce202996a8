package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUmask: the umask of the caller is for the files that the caller has asked for. In containers
// and volumes everybody may read what everybody may read in the image and with a kubelet.
func TestUmask(t *testing.T) {
	b := newBox(t, "")
	manifest := `apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  hostNetwork: true
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  volumes:
  - {name: empty, emptyDir: {}}
  - {name: host, hostPath: {path: ` + b.dir + `/host/dir, type: DirectoryOrCreate}}
  containers:
  - name: main
    image: localhost/box:1
    args: [do, cat /etc/hosts /etc/resolv.conf, write /empty/sub/file x]
    volumeMounts:
    - {name: empty, mountPath: /empty/sub, subPath: sub}
    - {name: empty, mountPath: /empty}
    - {name: host, mountPath: /host}
`
	if err := os.MkdirAll(filepath.Join(b.dir, "host"), 0o755); err != nil {
		t.Fatal(err)
	}
	junit := filepath.Join(b.dir, "junit.xml")
	cmd := b.command(t, "run", b.upArgs(t, directory(t, manifest), "--until", "completed", "--junit", junit, "--logs-to", filepath.Join(b.dir, "copies"))...)
	cmd.Args = append([]string{"sh", "-c", `umask 077; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for path, want := range map[string]os.FileMode{
		junit:                          0o600,
		filepath.Join(b.dir, "copies"): os.ModeDir | 0o700,
		filepath.Join(b.dir, "copies", "default_p_main.log"): 0o600,
		filepath.Join(b.dir, "host", "dir"):                  os.ModeDir | 0o755,
		filepath.Join(b.dir, "logs"):                         os.ModeDir | 0o755,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %s", path, info, err, want)
		}
	}
}
