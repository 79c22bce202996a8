// Package debian_test checks a machine with Debian that cloud-init has set up as in
// examples/cloud-init, and what the packages and the archive of a release do there. hack/vm runs
// the tests of one boot after the other.
package debian_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/hack/vm/job"
	"github.com/runonce/runonce/internal/testing/testimages"
)

func machine(t *testing.T) {
	t.Helper()
	if os.Getenv(job.Machine) != job.Debian {
		t.Skip("runs in the machine of make test-cloud-init")
	}
}

// try runs a command and returns its output.
func try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	// Variables of the tests would be unknown settings.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "RUNONCE_TEST_") })
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sh runs a shell command, which must succeed, and returns its output.
func sh(t *testing.T, command string) string {
	t.Helper()
	out, err := try(t, "sh", "-c", command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(out)
}

// TestFirstBoot: cloud-init has installed the package and started the pods of the example.
func TestFirstBoot(t *testing.T) {
	machine(t)
	if out, err := try(t, "cloud-init", "status", "--long"); err != nil || !strings.HasPrefix(out, "status: done\n") {
		log, _ := try(t, "sh", "-c", "tail -n 60 /var/log/cloud-init-output.log; journalctl -b -u runonce --no-pager")
		t.Fatalf("%v: %s\n%s", err, out, log)
	}
	if out, err := try(t, "cloud-init", "schema", "-c", "/var/lib/cloud/instance/user-data.txt"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	podRuns(t)
	if got := sh(t, "systemctl is-enabled runonce"); got != "enabled" {
		t.Errorf("the unit is %s", got)
	}
	startDiaries(t)
}

// diaries are an ordinary and a critical pod that write down when they are stopped.
const diaries = `
apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - {name: main, image: "localhost/box:1", args: [diary, /diaries/shop, 1s], volumeMounts: [{name: diaries, mountPath: /diaries}]}
  volumes: [{name: diaries, hostPath: {path: /srv/diaries}}]
---
apiVersion: v1
kind: Pod
metadata: {name: database}
spec:
  priorityClassName: system-cluster-critical
  terminationGracePeriodSeconds: 60
  containers:
  - {name: main, image: "localhost/box:1", args: [diary, /diaries/database, 1s], volumeMounts: [{name: diaries, mountPath: /diaries}]}
  volumes: [{name: diaries, hostPath: {path: /srv/diaries}}]
`

// startDiaries starts pods that no unit stops.
func startDiaries(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.MkdirAll("/srv/diaries", 0o777), os.WriteFile("/srv/diaries.yaml", []byte(diaries), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Log(sh(t, "runonce run --timeout 3m --images-dir /srv/images /srv/diaries.yaml"))
}

// readDiaries checks that the shutdown of the machine has ended the pods in order, and that they are known.
func readDiaries(t *testing.T) {
	t.Helper()
	shop, database := strings.Fields(sh(t, "cat /srv/diaries/shop")), strings.Fields(sh(t, "cat /srv/diaries/database"))
	if len(shop) != 6 || len(database) != 6 || len(shop[5]) > len(database[3]) || len(shop[5]) == len(database[3]) && shop[5] > database[3] {
		t.Errorf("the ordinary pod: %v, the critical one: %v; want both to end, the critical one last", shop, database)
	}
	if got := sh(t, "runonce ps"); strings.Count(got, "Terminated") < 2 {
		t.Errorf("runonce ps:\n%s", got)
	}
	sh(t, "runonce down /srv/diaries.yaml")
}

const confinedPods = `
apiVersion: v1
kind: Pod
metadata: {name: default}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: main, image: "localhost/box:1", args: [cat, /proc/self/attr/current]}]
---
apiVersion: v1
kind: Pod
metadata: {name: unconfined}
spec:
  hostNetwork: true
  restartPolicy: Never
  securityContext: {appArmorProfile: {type: Unconfined}}
  containers: [{name: main, image: "localhost/box:1", args: [cat, /proc/self/attr/current]}]
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/box:1
    args: [cat, /proc/self/attr/current]
    securityContext: {appArmorProfile: {type: Localhost, localhostProfile: own}}
`

// TestAppArmor: containers have the default profile or the one that they ask for. A pod whose
// profile is not loaded is rejected.
func TestAppArmor(t *testing.T) {
	machine(t)
	if got := sh(t, "cat /proc/$(pgrep -o -f '^/bin/box web')/attr/current"); got != "cri-containerd.apparmor.d (enforce)" {
		t.Errorf("the pod of the example has the profile %q", got)
	}
	if err := os.WriteFile("/srv/confined.yaml", []byte(confinedPods), 0o644); err != nil {
		t.Fatal(err)
	}
	const run = "runonce run --until completed --timeout 3m --images-dir /srv/images /srv/confined.yaml"
	out, err := try(t, "sh", "-c", run)
	if err == nil || !strings.Contains(out, `AppArmor profile "own" is not loaded: load it with apparmor_parser`) {
		t.Errorf("%v: %s", err, out)
	}
	sh(t, "echo 'profile own flags=(attach_disconnected,mediate_deleted,complain) { file, }' | apparmor_parser -r")
	t.Log(sh(t, run))
	for pod, want := range map[string]string{"default": "cri-containerd.apparmor.d (enforce)", "unconfined": "unconfined", "own": "own (complain)"} {
		if got := sh(t, "runonce logs "+pod); got != want {
			t.Errorf("pod %s has the profile %q", pod, got)
		}
	}
	sh(t, "runonce down /srv/confined.yaml")
}

// TestAfterReboot: the pods have come back.
func TestAfterReboot(t *testing.T) {
	machine(t)
	podRuns(t)
	readDiaries(t)
}

// podRuns checks that the pod of the example runs, serves its page, and is reported where the
// example says. The journal is that of this boot.
func podRuns(t *testing.T) {
	t.Helper()
	status, err := try(t, "systemctl", "status", "--no-pager", "-l", "runonce")
	t.Logf("%s", status)
	if err != nil || !strings.Contains(status, "Active: active") || !strings.Contains(status, `Status: "1 of 1 pod running"`) {
		t.Errorf("the unit: %v", err)
	}
	if got := strings.Fields(sh(t, "runonce ps | grep web")); len(got) < 3 || got[0] != "web" || got[1] != "Running" {
		t.Errorf("runonce ps: %q", got)
	}
	if got := strings.Fields(sh(t, "journalctl -b -u runonce -o cat --no-pager | grep '^web' | tail -1")); len(got) < 2 || got[1] != "Running" {
		t.Errorf("the journal: %q", got)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || string(page) != "the page of the example\n" {
		t.Errorf("%q, %v", page, err)
	}
}

// TestAfterReset: the pods have come back although the machine was not shut down. An upgrade of
// the package keeps them and the administrator's settings; without the package, they are gone.
func TestAfterReset(t *testing.T) {
	machine(t)
	podRuns(t)
	t.Run("upgrade", upgrade)
	t.Run("remove", remove)
	t.Run("purge", purge)
	t.Run("archive", archive)
}

func upgrade(t *testing.T) {
	before := sh(t, "pgrep -f '^/bin/box web'")
	sh(t, "systemctl disable runonce")
	sh(t, "DEBIAN_FRONTEND=noninteractive apt-get -y install /srv/later.deb")
	if got := sh(t, "dpkg-query -W -f '${Version}' runonce"); !strings.HasSuffix(got, "+later") {
		t.Errorf("version %s", got)
	}
	if got, _ := try(t, "systemctl", "is-enabled", "runonce"); got != "disabled\n" {
		t.Errorf("the unit that was disabled is %s", got)
	}
	sh(t, "systemctl reload runonce")
	if after := sh(t, "pgrep -f '^/bin/box web'"); after != before {
		t.Errorf("the pod was process %s and is %s", before, after)
	}
	podRuns(t)
}

func remove(t *testing.T) {
	sh(t, "systemctl enable runonce.path runonce@x.service runonce-watch@x.service")
	t.Log(sh(t, "apt-get -y remove runonce"))
	nothingRuns(t)
}

// nothingRuns checks that the pods and what they needed are gone.
func nothingRuns(t *testing.T) {
	t.Helper()
	if out, err := try(t, "pgrep", "-f", "^/bin/box|runonce"); err == nil {
		t.Errorf("processes: %s", out)
	}
	for _, command := range []string{
		"grep runonce /proc/self/mountinfo", "ls /sys/class/net | grep runonce", "ls -d /sys/fs/cgroup/runonce*",
		"iptables-save | grep -e CNI -e runonce", "systemctl is-active runonce",
	} {
		if out, err := try(t, "sh", "-c", command); err == nil {
			t.Errorf("%s: %s", command, out)
		}
	}
}

// purge: what is left was put there by others than runonce, or is a log.
func purge(t *testing.T) {
	sh(t, "apt-get -y purge runonce")
	onlyFilesOfOthers(t)
}

// onlyFilesOfOthers checks which files are left without the package.
func onlyFilesOfOthers(t *testing.T, more ...string) {
	t.Helper()
	left := strings.Fields(sh(t, "find / /run -xdev -path /srv -prune -o -path /var/log/pods -prune -o -path '*runonce*' -print"))
	slices.Sort(left)
	want := slices.Concat(more, []string{
		"/etc/runonce", "/etc/runonce/pods", "/etc/runonce/pods/web.yaml",
		"/var/lib/runonce", "/var/lib/runonce/images", "/var/lib/runonce/images/nginx.tar",
	})
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left on the machine:\n%s", diff)
	}
}

const factsPod = `
apiVersion: v1
kind: Pod
metadata: {name: facts}
spec:
  hostNetwork: true
  restartPolicy: Never
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  containers: [{name: main, image: "localhost/box:1", args: [facts]}]
---
apiVersion: batch/v1
kind: CronJob # is only checked
metadata: {name: never}
spec:
  schedule: "@daily"
  timeZone: Europe/Berlin
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: "localhost/box:1"}]}}}}
`

// inBareRoot runs the pod in a root file system of the archive and nothing else. Its mounts are
// private, as pivot_root wants them.
const inBareRoot = `set -e
mkdir -p /srv/bare
mount -t tmpfs bare /srv/bare
cd /srv/bare
mkdir -p usr/local proc sys dev run tmp var/lib var/log images
mount -t proc none proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs none run
tar -C usr/local -xzf /srv/archive.tar.gz
cp /srv/images/box.tar images
cp /srv/pod.yaml .
runonce="chroot . /usr/local/bin/runonce"
run() {
	$runonce version
	$runonce run --timeout 3m --until completed --images-dir /images /pod.yaml
	$runonce logs facts
	$runonce down --all
}
run
# Nothing but runc can have run the second pod.
rm usr/local/libexec/runonce/crun
run
`

// TestArchive brings what archive needs, for a machine that is not set up by cloud-init.
func TestArchive(t *testing.T) {
	if os.Getenv(job.Machine) != job.ARM64 {
		t.Skip("runs in the machine of make test-arm64")
	}
	if _, err := testimages.Write(t.Context(), "/srv/images", "box"); err != nil {
		t.Fatal(err)
	}
	sh(t, "ln -s $PWD/../../../dist/runonce-*-linux-arm64.tar.gz /srv/archive.tar.gz")
	archive(t)
}

// archive: the released archive runs a pod where there is nothing else, with seccomp, both with
// crun, which is the default, and with runc.
func archive(t *testing.T) {
	if err := errors.Join(os.WriteFile("/srv/pod.yaml", []byte(factsPod), 0o644), os.WriteFile("/srv/bare.sh", []byte(inBareRoot), 0o644)); err != nil {
		t.Fatal(err)
	}
	out := sh(t, "unshare --mount --propagation private sh /srv/bare.sh")
	rest := strings.ReplaceAll(out, `": "`, `":"`)
	for _, program := range []string{"/usr/local/libexec/runonce/crun", "/usr/local/bin/runc"} {
		for _, want := range []string{program, "Succeeded", `"seccomp":"filter"`} {
			var found bool
			if _, rest, found = strings.Cut(rest, want); !found {
				t.Fatalf("no %s for %s in:\n%s", want, program, out)
			}
		}
	}
}
