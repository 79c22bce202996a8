package debian_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRPMFiles: the RPM package has the files of the Debian package with their modes, but for the
// place of zsh's completion. It does not own directories that belong to packages of the
// distribution, where rpm would refuse to install it if it gave them another mode.
func TestRPMFiles(t *testing.T) {
	machine(t)
	want := map[string]string{}
	for line := range strings.Lines(sh(t, "dpkg-deb -c /srv/repository/runonce_*.deb")) {
		fields := strings.Fields(line)
		path := strings.Trim(fields[5], "./")
		if fields[0][0] == 'd' && !strings.Contains(path, "runonce") {
			continue
		}
		path = strings.Replace(path, "zsh/vendor-completions", "zsh/site-functions", 1)
		want["/"+path] = strings.Join([]string{fields[0], fields[1]}, " ")
	}
	got := map[string]string{}
	for line := range strings.Lines(sh(t, `rpm -qp --qf '[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME}\n]' /srv/runonce.rpm`)) {
		path, mode, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[path] = mode
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 12 {
		t.Errorf("files of the packages (-deb +rpm):\n%s", diff)
	}
	// The name of the machine that builds the package would make it another.
	if got := sh(t, "rpm -qp --qf '%{BUILDHOST}, recommends [%{RECOMMENDS}]' /srv/runonce.rpm"); got != "reproducible, recommends containernetworking-plugins" {
		t.Errorf("built on %s", got)
	}
}

// base makes the files of a small distribution. It has directories with the modes that they have
// on Fedora, and what scriptlets may call: a shell, systemctl, and a preset that enables the unit.
const base = `set -e
mkdir -p /srv/base/tree
cd /srv/base/tree
mkdir -p etc proc run usr/bin usr/lib/systemd/system usr/lib/systemd/system-preset usr/lib64 usr/share/bash-completion/completions \
	usr/share/doc usr/share/fish/vendor_completions.d usr/share/man/man1 usr/share/zsh/site-functions var/lib
ln -s usr/bin usr/lib usr/lib64 .
programs="/usr/bin/dash /usr/bin/rm /usr/bin/rmdir /usr/bin/grep /usr/bin/systemctl"
for file in $programs $(ldd $programs | grep -o '/[^ :]* (' | sort -u); do
	[ "$file" = "(" ] || install -D "$file" "usr/${file#/usr}"
done
ln -s dash usr/bin/sh
printf 'enable runonce.service\ndisable *\n' >usr/lib/systemd/system-preset/90-base.preset
chmod 555 usr/bin usr/lib usr/lib64
`

// stubs builds that package, and two that provide what RHEL 9 and RHEL 10 have of what is needed.
const stubs = `set -e
spec() {
	printf '%s\n' "Name: $1" 'Version: 1' 'Release: 1' 'Summary: stub' 'License: none' 'AutoReqProv: no' "Provides: $2" \
		'%define __os_install_post %{nil}' '%define debug_package %{nil}' '%description' 'stub' "$3" '%files' "$4" >/srv/base/$1.spec
	rpmbuild -bb --quiet --define '_binary_payload w0.gzdio' --define '_topdir /srv/base' --define '_rpmdir /srv' --define '_rpmfilename %{NAME}.rpm' /srv/base/$1.spec
}
spec zz-base '/bin/sh' '%install
cp -a /srv/base/tree/. %{buildroot}' '/*'
spec zz-rhel9 iptables
spec zz-rhel10 nftables
`

// quiet runs a command, which must succeed without a message: the messages of rpm are warnings and
// the errors of scriptlets.
func quiet(t *testing.T, command string) {
	t.Helper()
	if out := sh(t, command); out != "" {
		t.Errorf("%s: %s", command, out)
	}
}

// TestRPMInImage: the package can be installed, upgraded and removed in a directory, where systemd
// does not run, and needs nothing that RHEL 9 or RHEL 10 lacks.
func TestRPMInImage(t *testing.T) {
	machine(t)
	sh(t, base)
	sh(t, stubs)
	sh(t, "mkdir -p /srv/root/dev && mknod -m 666 /srv/root/dev/null c 1 3")
	rpm := "rpm --force-debian --root /srv/root --dbpath /var/lib/rpm "
	out, err := try(t, "sh", "-c", rpm+"-i /srv/runonce.rpm")
	if err == nil {
		t.Error("installed without what it needs")
	}
	for _, want := range []string{"\t/bin/sh is needed", "\t(iptables or nftables) is needed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	quiet(t, rpm+"-i --test /srv/runonce.rpm /srv/zz-base.rpm /srv/zz-rhel9.rpm")
	// The shell comes with the same transaction and must be there before.
	quiet(t, rpm+"-i /srv/runonce.rpm /srv/zz-base.rpm /srv/zz-rhel10.rpm")
	quiet(t, rpm+"-V runonce")
	wants := "/srv/root/etc/systemd/system/multi-user.target.wants/runonce"
	sh(t, "ls "+wants+".service")

	// What the administrator and pods leave there.
	sh(t, `cd /srv/root
chroot . systemctl disable runonce.service
chroot . systemctl enable runonce.path runonce@web.service runonce@web.path runonce-watch@other.service
mkdir -p var/lib/runonce/images var/lib/runonce/claims var/lib/runonce/containerd var/lib/runonce/.lock
touch etc/runonce/pods/web.yaml etc/runonce/config.yaml var/lib/runonce/images/web.tar var/lib/runonce/claims/data var/lib/runonce/containerd/db`)
	quiet(t, rpm+"-U /srv/later.rpm")
	if got := sh(t, rpm+"-q --qf '%{VERSION} ' runonce"); !strings.HasSuffix(got, "+later") {
		t.Errorf("versions %s", got)
	}
	quiet(t, rpm+"-V runonce")
	if _, err := os.Lstat(wants + ".service"); err == nil {
		t.Error("the upgrade has enabled the unit")
	}
	if _, err := os.Lstat(wants + ".path"); err != nil {
		t.Errorf("the upgrade has disabled another: %v", err)
	}
	quiet(t, rpm+"-e runonce")
	left := strings.Fields(sh(t, "cd /srv/root && find . -path '*runonce*'"))
	slices.Sort(left)
	want := []string{
		"./etc/runonce", "./etc/runonce/config.yaml", "./etc/runonce/pods", "./etc/runonce/pods/web.yaml", "./var/lib/runonce",
		"./var/lib/runonce/claims", "./var/lib/runonce/claims/data", "./var/lib/runonce/images", "./var/lib/runonce/images/web.tar",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left in the image:\n%s", diff)
	}
}

// TestRPMOnMachine: where systemd runs, the scriptlets do what those of other RPM packages do. The
// first installation enables the unit if a preset says so, and does not start it. An upgrade
// touches neither pods that run nor settings. Removing the package stops everything.
func TestRPMOnMachine(t *testing.T) {
	machine(t)
	// What the package needs is dpkg's here.
	rpm := "rpm --force-debian --nodeps "
	sh(t, "mkdir -p /etc/systemd/system-preset && echo enable runonce.service >/etc/systemd/system-preset/10-test.preset")
	quiet(t, rpm+"-i /srv/runonce.rpm")
	unitIs(t, map[string]string{"UnitFileState": "enabled", "ActiveState": "inactive", "NeedDaemonReload": "no", "Description": "Run the pods in /etc/runonce/pods once"})
	sh(t, "systemctl start runonce")
	podRuns(t)

	sh(t, "systemctl disable runonce")
	sh(t, "echo 'timeout: 5m' >/etc/runonce/config.yaml")
	before := sh(t, "cat /etc/runonce/config.yaml /etc/runonce/pods/web.yaml; pgrep -f '^/bin/box web'")
	quiet(t, rpm+"-U /srv/later.rpm")
	unitIs(t, map[string]string{"UnitFileState": "disabled", "ActiveState": "active", "NeedDaemonReload": "no", "Description": "Run the pods in /etc/runonce/pods once (later)"})
	sh(t, "systemctl reload runonce")
	if diff := cmp.Diff(before, sh(t, "cat /etc/runonce/config.yaml /etc/runonce/pods/web.yaml; pgrep -f '^/bin/box web'")); diff != "" {
		t.Errorf("the upgrade has changed:\n%s", diff)
	}
	podRuns(t)
	quiet(t, rpm+"-V runonce")

	sh(t, "systemctl enable runonce.service runonce.path runonce@web.service && systemctl start runonce.path")
	quiet(t, rpm+"-e runonce")
	nothingRuns(t)
	onlyFilesOfOthers(t, "/etc/runonce/config.yaml")
}

// unitIs checks properties of the unit.
func unitIs(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	properties := strings.Join(slices.Collect(maps.Keys(want)), ",")
	for line := range strings.Lines(sh(t, "systemctl show -p "+properties+" runonce")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[name] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the unit:\n%s", diff)
	}
}
