#!/usr/bin/env bash
# Usage: hack/setup.sh run|test|vm|arm64|debian|podman|bench|release
#
# Installs what this machine lacks to run pods (run), to also run the tests (test), or to
# also run tests in an emulated machine (vm), in one for arm64 (arm64), and in one with Debian and
# cloud-init (debian), or unpacks podman for the benchmarks (podman), or installs what they
# measure with (bench), or installs compilers for the architectures in ARCH
# and unpacks C libraries for them and the source of crun (release). On
# distributions other than Debian, it lists the missing packages and stops.
# Packages that only the tests need and that would start a service or replace another
# package (containerd, docker-registry, etcd, PostgreSQL, skopeo) are unpacked into .cache/debian and not
# installed, like busybox for their images; QEMU, a kernel and systemd are unpacked into .cache/vm. podman is unpacked into
# .cache/podman: its package would configure a network for all pods of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:?usage: hack/setup.sh run|test|vm|arm64|debian|podman|bench|release}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
unpacked=$PWD/.cache/debian
emulated=$PWD/.cache/vm
missing=()  # packages to install
unpack=()   # packages to unpack
updated=""
old_containerd=""
postgres=""

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
need() { has "$1" || missing+=("$2"); }

# Prints the Debian release, or nothing on other distributions.
debian() { (. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && echo "${VERSION_ID:-testing}") || true; }

# Succeeds if the CNI plugins are in one of the usual directories.
has_cni() {
	local dir
	for dir in ${CNI_PATH:-} /opt/cni/bin /usr/lib/cni /usr/libexec/cni; do
		[ -x "$dir/bridge" ] && [ -x "$dir/portmap" ] && [ -x "$dir/host-local" ] && return 0
	done
	return 1
}

# Succeeds if the disk of the machine with Debian is there and has AppArmor, which older ones lack.
has_apparmor() { [ -e "$1" ] && debugfs -R "stat /usr/sbin/apparmor_parser" "$1" 2>/dev/null | grep -q ^Inode; }

# Succeeds if PostgreSQL is installed or unpacked.
has_postgres() { compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || compgen -G "$unpacked/usr/lib/postgresql/*/bin/postgres" >/dev/null; }

apt() {
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a timeout 900 apt-get -q -o DPkg::Lock::Timeout=120 \
		-o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@" </dev/null
}

# Runs apt-get update, at most once, and only when something has to be downloaded.
update() {
	[ -n "$updated" ] && return
	updated=yes
	say "apt-get update"
	apt update >/dev/null || die "apt-get update failed"
}

install_missing() {
	say "installing ${missing[*]}"
	# Try without updating the package lists first. --no-remove keeps packages that
	# something else may depend on.
	local flags=(-y --no-install-recommends --no-remove)
	if ! apt install "${flags[@]}" "${missing[@]}" >.cache/apt.log 2>&1; then
		update
		apt install "${flags[@]}" "${missing[@]}" >.cache/apt.log 2>&1 || {
			cat .cache/apt.log >&2
			die "cannot install ${missing[*]}"
		}
	fi
	say "installed ${missing[*]}"
}

unpack_one() {
	local package=$1 dir
	dir=$(mktemp -d .cache/deb.XXXXXX)
	chmod 755 "$dir"
	(cd "$dir" && apt download "$package" >/dev/null 2>&1) || {
		update
		(cd "$dir" && apt download "$package" >/dev/null) || die "cannot download $package"
	}
	mkdir -p "$unpacked"
	dpkg-deb -x "$dir"/"$package"_*.deb "$unpacked"
	rm -rf "$dir"
	say "unpacked $package into ${unpacked#"$PWD/"}"
}

# Unpacks PostgreSQL with the libraries that this machine lacks, without those that only compile queries.
unpack_postgres() {
	local tmp=$PWD/.cache/postgres.new deb
	rm -rf "$tmp"
	mkdir -p "$tmp/partial"
	say "downloading PostgreSQL"
	update
	apt -y --no-install-recommends --download-only -o Dir::Cache::archives="$tmp" install postgresql >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download postgresql"
	}
	mkdir -p "$unpacked"
	for deb in "$tmp"/*.deb; do
		case ${deb##*/} in
		libc6_* | libc-bin_* | libllvm* | libperl* | libz3*) ;;
		lib* | postgresql-[0-9]* | postgresql-client-[0-9]*) dpkg-deb -x "$deb" "$unpacked" ;;
		esac
	done
	rm -rf "$tmp"
	say "unpacked PostgreSQL into .cache/debian"
}

# Unpacks QEMU with the libraries that this machine lacks, and the parts of Debian's kernel
# that hack/vm needs.
unpack_vm() {
	local tmp=.cache/vm.new kernel deb
	rm -rf "$tmp"
	mkdir -p "$tmp/debs/partial"
	say "downloading QEMU and a kernel"
	update
	apt -y --no-install-recommends --download-only -o Dir::Cache::archives="$PWD/$tmp/debs" install qemu-system-x86 \
		>.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download qemu-system-x86"
	}
	kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	(cd "$tmp" && apt download "$kernel" >/dev/null 2>&1) || die "cannot download ${kernel:-linux-image-amd64}"
	for deb in "$tmp"/debs/*.deb; do
		case ${deb##*/} in
		# QEMU runs with this machine's loader, which needs this machine's C library.
		libc6_* | libc-bin_*) ;;
		*.deb) [ ! -e "$deb" ] || dpkg-deb -x "$deb" "$tmp" ;;
		esac
	done
	unpack_kernel "$tmp"/linux-image-*.deb "$tmp"
	rm -rf "$tmp"/debs "$tmp"/*.deb "$emulated"
	mv "$tmp" "$emulated"
	say "unpacked qemu-system-x86 and $kernel into .cache/vm"
}

# Unpacks the parts of a package with Debian's kernel that hack/vm needs.
unpack_kernel() {
	dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards './boot/vmlinuz-*' \
		'./lib/modules/*/kernel/'{net,fs,lib,crypto,arch}'/*' './lib/modules/*/kernel/drivers/'{virtio,net,block}'/*.ko'
}

# Unpacks systemd with its libraries, as an overlay layer that the machines of hack/vm mount
# above the files of this machine. Everything is below /usr, since /bin, /sbin and /lib are
# links there. Settings are left out, because they would start services.
unpack_systemd() {
	local tmp=.cache/systemd.new packages dir deb
	rm -rf "$tmp"
	mkdir -p "$tmp/debs" "$tmp/tree/usr/"{bin,sbin,lib}
	say "downloading systemd"
	update
	# Download all dependencies: those installed here may be older.
	packages=$(apt-cache depends --recurse --important systemd | grep -E '^(systemd|lib[^:]*)$' | grep -vx libc6 | sort -u) ||
		die "cannot list the dependencies of systemd"
	# shellcheck disable=SC2086
	(cd "$tmp/debs" && apt download $packages) >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download systemd"
	}
	for dir in bin sbin lib; do ln -s "usr/$dir" "$tmp/tree/$dir"; done
	for deb in "$tmp"/debs/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/tree" --keep-directory-symlink --wildcards \
			--exclude './usr/share' --exclude './etc' --exclude './var'
	done
	rm "$tmp"/tree/{bin,sbin,lib}
	rm -rf "$emulated/systemd"
	mv "$tmp/tree" "$emulated/systemd"
	rm -rf "$tmp"
	say "unpacked systemd into .cache/vm"
}

# Makes a directory and sets options to those of an apt that keeps everything there, so that this
# machine need not know the architecture or the sources of packages. More options may follow.
separate_apt() {
	local dir=$1
	shift
	rm -rf "$dir"
	mkdir -p "$dir"/apt/{lists,archives}/partial
	chmod -R a+rX "$dir"
	touch "$dir/apt/status"
	options=(-o Dir::State="$dir/apt" -o Dir::State::status="$dir/apt/status" -o Dir::Cache="$dir/apt"
		-o APT::Sandbox::User=root "$@")
}

# Unpacks the C libraries of runc and crun for an architecture into .cache/release.
unpack_libraries() {
	local arch=$1 tmp=$PWD/.cache/release/$1.new options deb
	separate_apt "$tmp" -o APT::Architecture="$arch" -o APT::Architectures="$arch"
	say "downloading C libraries for $arch"
	(cd "$tmp" && apt "${options[@]}" update && apt "${options[@]}" download libseccomp-dev libcap-dev libyajl-dev) >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download C libraries for $arch"
	}
	for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$tmp/tree"; done
	rm -rf ".cache/release/$arch"
	mv "$tmp/tree" ".cache/release/$arch"
	rm -rf "$tmp"
	say "unpacked C libraries for $arch into .cache/release"
}

# Unpacks the source of crun with Debian's patches into .cache/release/crun/source, beside the files
# of the source package.
unpack_crun() {
	local tmp=$PWD/.cache/release/crun.new options
	separate_apt "$tmp" -o Dir::Etc::sourcelist="$tmp/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
	say "downloading the source of crun"
	update
	apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
		grep -E " $(debian_codename)(-updates|-security)? " | sort -u >"$tmp/apt/sources.list" ||
		die "no source of Debian packages is configured"
	(cd "$tmp" && apt "${options[@]}" update && apt "${options[@]}" source crun) >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download the source of crun"
	}
	rm -rf "$tmp/apt" .cache/release/crun
	mv "$tmp"/crun-*/ "$tmp/source"
	mv "$tmp" .cache/release/crun
	say "unpacked the source of crun into .cache/release"
}

# Unpacks the emulator for arm64, which needs no other libraries than that of unpack_vm, a kernel and
# the root file system of the machine for arm64. No package is configured there.
unpack_arm64() {
	local tmp=$PWD/.cache/arm64.new options kernel dir deb program
	separate_apt "$tmp" -o APT::Architecture=arm64 -o APT::Architectures=arm64
	mkdir -p "$tmp/root/usr/"{bin,sbin,lib} "$tmp/root/"{etc,root,srv,var/log}
	for dir in bin sbin lib; do ln -s "usr/$dir" "$tmp/root/$dir"; done
	say "downloading QEMU, a kernel and programs for arm64"
	update
	{
		(cd "$tmp" && apt download qemu-system-arm)
		apt "${options[@]}" update
		kernel=$(apt-cache "${options[@]}" depends linux-image-arm64 | awk '/Depends: linux-image-/ { print $2; exit }')
		(cd "$tmp" && apt "${options[@]}" download "$kernel")
		apt "${options[@]}" -y --no-install-recommends --download-only install containernetworking-plugins \
			bash coreutils crun dash e2fsprogs findutils grep gzip iproute2 iptables mount nftables procps runc sed tar util-linux
	} >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot download programs for arm64"
	}
	dpkg-deb --fsys-tarfile "$tmp"/qemu-system-arm_*.deb | tar -x -C "$emulated" ./usr/bin/qemu-system-aarch64
	unpack_kernel "$tmp"/linux-image-*.deb "$tmp"
	for deb in "$tmp"/apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/root" --keep-directory-symlink --exclude './usr/share'
	done
	cp /etc/{passwd,group,hosts} "$tmp/root/etc"
	echo arm64 >"$tmp/root/etc/hostname"
	for program in {iptables,ip6tables}{,-save,-restore}; do ln -s xtables-nft-multi "$tmp/root/usr/sbin/$program"; done
	rm -rf "$emulated/arm64" "$tmp"/apt "$tmp"/*.deb
	mv "$tmp" "$emulated/arm64"
	say "unpacked a machine for arm64 into .cache/vm"
}

# Makes the disk of a machine with Debian and cloud-init, and a directory with the packages that
# the package of runonce needs there.
make_debian() {
	local tmp=.cache/debian.new root mirror
	root=$PWD/$tmp/root
	rm -rf "$tmp"
	mkdir -p "$tmp"/out/packages
	say "making a disk with Debian (only once, takes about two minutes)"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' "Codename: $(debian_codename)" | head -1)
	{
		debootstrap --variant=minbase --include=ca-certificates,dbus,iproute2,kmod,systemd,systemd-sysv,udev \
			"$(debian_codename)" "$root" "${mirror:?no source of Debian packages is configured}"
		in_debian "$root" apt-get install linux-image-cloud-amd64 apparmor cloud-init locales rpm
		# Services are not enabled where systemd does not run.
		in_debian "$root" systemctl enable cloud-init-local cloud-init cloud-config cloud-final
		in_debian "$root" apt-get clean
		in_debian "$root" apt-get install --download-only runc containernetworking-plugins iptables
		mv "$root"/var/cache/apt/archives/*.deb "$tmp/out/packages"
		rm -rf "$root"/var/lib/apt/lists/* "$root/etc/resolv.conf"
		echo "/dev/vda / ext4 defaults 0 1" >"$root/etc/fstab"
		echo debian >"$root/etc/hostname"
		mv "$root"/boot/vmlinuz-* "$tmp/out/vmlinuz"
		mv "$root"/boot/initrd.img-* "$tmp/out/initrd.img"
		mke2fs -q -t ext4 -d "$root" "$tmp/out/disk" 3G
	} >.cache/debian.log 2>&1 || {
		tail -40 .cache/debian.log >&2
		die "cannot make a disk with Debian"
	}
	rm -rf "$emulated/debian"
	mv "$tmp/out" "$emulated/debian"
	rm -rf "$tmp"
	say "made a disk with Debian in .cache/vm"
}

debian_codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# Runs a command in a directory with Debian; its mounts go with it.
in_debian() {
	local root=$1
	shift
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	[ "$1" != apt-get ] || set -- apt-get -qy --no-install-recommends "${@:2}"
	DEBIAN_FRONTEND=noninteractive timeout 900 unshare --mount sh -c \
		'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@" </dev/null
}

if [ "$mode" = release ]; then
	has go || die "Go is missing: install the version in go.mod"
	need git git
	need pkg-config pkg-config
	need gcc gcc
	need dpkg-source dpkg-dev
	need python3 python3
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	IFS=, read -ra archs <<<"${ARCH:-amd64,arm64}"
	for arch in "${archs[@]}"; do
		case $arch in
		amd64) triplet=x86_64-linux-gnu ;;
		arm64) triplet=aarch64-linux-gnu ;;
		*) die "cannot build for $arch: must be amd64 or arm64" ;;
		esac
		[ "$arch" = "$(go env GOHOSTARCH)" ] || [ -e "/usr/$triplet/lib/libc.a" ] || missing+=("libc6-dev-$arch-cross")
		need "$triplet-gcc" "gcc-${triplet//_/-}"
	done
	mkdir -p .cache/release
	if [ -z "$(debian)" ]; then
		[ ${#missing[@]} = 0 ] || die "missing Debian packages: ${missing[*]}; install their equivalents and try again"
	elif [ ${#missing[@]} != 0 ]; then
		[ "$(id -u)" = 0 ] || die "missing packages: ${missing[*]}; run as root to install them"
		install_missing
	fi
	for arch in "${archs[@]}"; do
		# The directory may be from before there were others than libseccomp.
		[ -e ".cache/release/$arch/usr/include/yajl" ] || unpack_libraries "$arch"
	done
	[ -e .cache/release/crun/source ] || unpack_crun
	exit 0
fi

if [ "$mode" = bench ]; then
	need perf linux-perf
	need igzip isal
	need zstd zstd
	[ ${#missing[@]} -eq 0 ] && exit 0
	[ -n "$(debian)" ] || die "install these and try again: ${missing[*]}"
	mkdir -p .cache
	install_missing
	exit 0
fi
if [ "$mode" = podman ]; then
	unpacked=$PWD/.cache/podman
	[ -x "$unpacked/usr/bin/podman" ] && exit 0
	[ -n "$(debian)" ] || die "cannot unpack podman: install it and try again"
	mkdir -p .cache
	# With the libraries that a machine without podman may lack; podman itself comes last.
	for p in conmon netavark aardvark-dns catatonit libassuan0 libdevmapper1.02.1 libgpgme11 libsubid4 libyajl2 podman; do
		unpack_one "$p"
	done
	exit 0
fi

has go || die "Go is missing: install the version in go.mod"
has git || missing+=(git)
need runc runc
need iptables iptables
has_cni || missing+=(containernetworking-plugins)
if [ "$mode" != run ]; then
	need gcc gcc
	# cgo, and so the race detector, needs the C headers.
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	need ip iproute2
	need curl curl
	need jq jq
	need nft nftables
	need crun crun
	need mkfs.ext4 e2fsprogs
	need mkfs.xfs xfsprogs
	# The tests need Debian's version of containerd, whatever else is installed.
	for p in "$unpacked/usr/bin" /usr/bin; do
		[[ $("$p/containerd" --version 2>/dev/null) == *" 1.6."* ]] && old_containerd=yes
	done
	[ -n "$old_containerd" ] || unpack+=(containerd)
	has docker-registry || [ -x "$unpacked/usr/bin/docker-registry" ] || unpack+=(docker-registry)
	[ -x "$unpacked/usr/bin/etcd" ] || unpack+=(etcd-server)
	has_postgres || postgres=missing
	# With the libraries that a machine without skopeo may lack; skopeo itself comes last.
	[ -x "$unpacked/bin/busybox" ] || [ -x "$unpacked/usr/bin/busybox" ] || unpack+=(busybox)
	has skopeo || [ -x "$unpacked/usr/bin/skopeo" ] || unpack+=(libassuan0 libdevmapper1.02.1 libgpgme11 skopeo)
fi
vm="" systemd=""
arm64=""
debian_disk=""
if [ "$mode" = debian ]; then
	need debootstrap debootstrap
	need mke2fs e2fsprogs
	has_apparmor "$emulated/debian/disk" || debian_disk=missing
fi
[ "$mode" != arm64 ] || [ -e "$emulated/arm64/root" ] || arm64=missing
if [ "$mode" = vm ] || [ "$mode" = arm64 ] || [ "$mode" = debian ]; then
	ls "$emulated"/boot/vmlinuz-* >/dev/null 2>&1 || vm=missing
	[ -x "$emulated/systemd/usr/lib/systemd/systemd" ] || systemd=missing
fi

[ "${#missing[@]}${#unpack[@]}$postgres$vm$systemd$arm64$debian_disk" = 00 ] && exit 0
mkdir -p .cache
if [ -z "$(debian)" ]; then
	die "missing Debian packages: ${missing[*]} ${unpack[*]} ${postgres:+postgresql}; install their equivalents and try again"
fi
[ "${#missing[@]}" = 0 ] || [ "$(id -u)" = 0 ] || die "missing packages: ${missing[*]}; run as root to install them"
[ "${#missing[@]}" = 0 ] || install_missing
for p in "${unpack[@]}"; do unpack_one "$p"; done
[ -z "$postgres" ] || unpack_postgres
[ -z "$vm" ] || unpack_vm
# unpack_vm replaces all of .cache/vm, including systemd, arm64 and Debian.
[ -z "$vm$systemd" ] || unpack_systemd
[ -z "$vm$arm64" ] || [ "$mode" != arm64 ] || unpack_arm64
[ -z "$vm$debian_disk" ] || [ "$mode" != debian ] || make_debian
