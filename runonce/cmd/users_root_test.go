package cmd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const ownUsers = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {token: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: mapped, annotations: {example.com/kept: "yes"}}
spec:
  hostUsers: false
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 2
  securityContext:
    fsGroup: 3000
    sysctls: [{name: kernel.shm_rmid_forced, value: "1"}, {name: net.ipv4.ip_unprivileged_port_start, value: "80"}]
  containers:
  - name: main
    image: localhost/box:1
    args: [do, "write /host/made by-root", "write /scratch/made too", "write /dev/shm/made too", "write /own too", "facts -hold -stat MADE -sysctl kernel.shm_rmid_forced,net.ipv4.ip_unprivileged_port_start"]
    securityContext: {procMount: Unmasked}
    volumeMounts:
    - {name: host, mountPath: /host}
    - {name: host, mountPath: /sub, subPath: inner, readOnly: true}
    - {name: scratch, mountPath: /scratch}
    - {name: settings, mountPath: /settings}
    - {name: keys, mountPath: /keys, readOnly: true}
  - name: user
    image: localhost/box:1
    args: [facts, -hold, -stat, "/scratch/made,/keys/token"]
    securityContext: {runAsUser: 1000}
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: keys, mountPath: /keys}
  volumes:
  - {name: host, hostPath: {path: HOST}}
  - {name: scratch, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys}}
`

// TestOwnUsers: root of a pod with a user namespace is root of its files, and nobody on
// the host.
func TestOwnUsers(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		host := filepath.Join(m.dir, "host")
		if err := os.MkdirAll(filepath.Join(host, "inner"), 0o755); err != nil {
			t.Fatal(err)
		}
		made := "/host/made,/scratch/made,/dev/shm/made,/own,/sub,/etc/hosts,/etc/resolv.conf,/settings/..data/color,/keys/..data/token,/bin/box,/dev/null"
		text := strings.NewReplacer("HOST", host, "MADE", made).Replace(ownUsers)
		dir := podDir(t, text)
		if strings.HasSuffix(t.Name(), "1.6") {
			code, out := m.try(t, "run", "-o", "wide", "--max-retries", "1", dir)
			if code != 3 || !strings.Contains(out, "the snapshotter cannot map user IDs") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			return
		}
		m.once(t, "run", "--max-retries", "1", dir)
		v := m.facts(t, "mapped", "main")
		if v.UID != 0 || len(v.UIDMap) != 1 || strings.Fields(v.UIDMap[0])[1] == "0" || strings.Fields(v.UIDMap[0])[2] != "65536" {
			t.Errorf("user %d, map %q", v.UID, v.UIDMap)
		}
		for path, f := range v.Files {
			wantGID := 0
			if strings.HasPrefix(path, "/scratch") || strings.HasPrefix(path, "/settings") || strings.HasPrefix(path, "/keys") {
				wantGID = 3000
			}
			if path == "/dev/null" {
				continue // the host's own, as everywhere
			}
			if f.Error != "" || f.UID != 0 || f.GID != wantGID {
				t.Errorf("%s: %+v, want it to be root's", path, f)
			}
		}
		if v.Sysctls["kernel.shm_rmid_forced"] != "1" || v.Sysctls["net.ipv4.ip_unprivileged_port_start"] != "80" {
			t.Errorf("sysctls %v", v.Sysctls)
		}
		user := m.facts(t, "mapped", "user")
		if user.UID != 1000 || user.Files["/scratch/made"].UID != 0 || user.Files["/keys/token"].Error != "" || user.Namespaces["user"] != v.Namespaces["user"] {
			t.Errorf("the other container: %+v", user)
		}
		// What root made in there is root's on the host, through the mapped mount alone.
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(host, "made"), &st); err != nil || st.Uid != 0 {
			t.Errorf("on the host the file is user %d's, %v", st.Uid, err)
		}
		pause := pauseProcess(t, v.Namespaces["pid"])
		uid, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pause), "status"))
		if err != nil || strings.Contains(string(uid), "Uid:\t0") {
			t.Errorf("the pause process is root on the host: %v\n%s", err, uid)
		}
		m.once(t, "down", dir)
		if left, _ := filepath.Glob(filepath.Join(m.dir, "state", "network", "users", "*")); len(left) > 0 {
			t.Errorf("IDs that are still taken: %q", left)
		}
	})
}
