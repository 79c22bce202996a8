#!/usr/bin/env bash
# Usage: hack/setup.sh run|test|vm
#
# Looks for what this machine lacks to run pods (run), to run the tests as well (test) or to
# run them in an emulated machine too (vm).
# On Debian it installs that and says so; elsewhere it names it and stops. Programs that
# only the tests need and whose packages would start a service or replace another one
# (containerd, docker-registry, etcd) are unpacked below .cache/debian and not installed,
# the emulator, a kernel for it and systemd below .cache/vm.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:?usage: hack/setup.sh run|test|vm}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
unpacked=$PWD/.cache/debian
emulated=$PWD/.cache/vm
missing=()  # packages to install
unpack=()   # packages to unpack
updated=""
old_containerd=""

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
need() { has "$1" || missing+=("$2"); }

# The release of Debian, or nothing.
debian() { (. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && echo "${VERSION_ID:-testing}") || true; }

# Whether the CNI plugins are in one of the directories where they are looked for.
has_cni() {
	local dir
	for dir in ${CNI_PATH:-} /opt/cni/bin /usr/lib/cni /usr/libexec/cni; do
		[ -x "$dir/bridge" ] && [ -x "$dir/portmap" ] && [ -x "$dir/host-local" ] && return 0
	done
	return 1
}

apt() {
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a timeout 900 apt-get -q -o DPkg::Lock::Timeout=120 \
		-o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@" </dev/null
}

# apt-get update, at most once, and only when something has to be fetched.
update() {
	[ -n "$updated" ] && return
	updated=yes
	say "apt-get update"
	apt update >/dev/null || die "apt-get update failed"
}

install_missing() {
	say "installing ${missing[*]}"
	# A package that is known already needs no update of the lists; --no-remove lets
	# nothing be replaced that somebody else relies on.
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
		(cd "$dir" && apt download "$package" >/dev/null) || die "cannot fetch $package"
	}
	mkdir -p "$unpacked"
	dpkg-deb -x "$dir"/"$package"_*.deb "$unpacked"
	rm -rf "$dir"
	say "unpacked $package into .cache/debian"
}

# The emulator with the libraries that this machine lacks, and the parts of Debian's kernel
# that the tests need: together the machine of hack/vm.
unpack_vm() {
	local tmp=.cache/vm.new kernel deb
	rm -rf "$tmp"
	mkdir -p "$tmp/debs/partial"
	say "fetching an emulator and a kernel for it"
	update
	apt -y --no-install-recommends --download-only -o Dir::Cache::archives="$PWD/$tmp/debs" install qemu-system-x86 \
		>.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot fetch qemu-system-x86"
	}
	kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	(cd "$tmp" && apt download "$kernel" >/dev/null 2>&1) || die "cannot fetch ${kernel:-linux-image-amd64}"
	for deb in "$tmp"/debs/*.deb; do
		case ${deb##*/} in
		# The machine's own C library goes with its own loader.
		libc6_* | libc-bin_*) ;;
		*.deb) [ ! -e "$deb" ] || dpkg-deb -x "$deb" "$tmp" ;;
		esac
	done
	dpkg-deb --fsys-tarfile "$tmp"/linux-image-*.deb | tar -x -C "$tmp" --wildcards './boot/vmlinuz-*' \
		'./lib/modules/*/kernel/'{net,fs,lib,crypto,arch}'/*' './lib/modules/*/kernel/drivers/'{virtio,net}'/*.ko'
	rm -rf "$tmp"/debs "$tmp"/*.deb "$emulated"
	mv "$tmp" "$emulated"
	say "unpacked qemu-system-x86 and $kernel into .cache/vm"
}

# systemd with its libraries, as a layer that machines of hack/vm have above the files of
# this one: with the directories of a merged /usr only, for the links to them are there, and
# without settings, which would start services.
unpack_systemd() {
	local tmp=.cache/systemd.new packages dir deb
	rm -rf "$tmp"
	mkdir -p "$tmp/debs" "$tmp/tree/usr/"{bin,sbin,lib}
	say "fetching systemd for the emulated machine"
	update
	# All that it depends on and not only what is missing here: what is here may be older.
	packages=$(apt-cache depends --recurse --important systemd | grep -E '^(systemd|lib[^:]*)$' | grep -vx libc6 | sort -u) ||
		die "cannot find out what systemd depends on"
	# shellcheck disable=SC2086
	(cd "$tmp/debs" && apt download $packages) >.cache/apt.log 2>&1 || {
		cat .cache/apt.log >&2
		die "cannot fetch systemd"
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

has go || die "Go is missing: install the version that go.mod names"
has git || missing+=(git)
need runc runc
need iptables iptables
has_cni || missing+=(containernetworking-plugins)
if [ "$mode" != run ]; then
	need gcc gcc
	# Without the headers cgo, and with it the race detector, does not work.
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	need ip iproute2
	need nft nftables
	need crun crun
	# The daemon must be Debian's, not one that is here for another reason.
	for p in "$unpacked/usr/bin" /usr/bin; do
		[[ $("$p/containerd" --version 2>/dev/null) == *" 1.6."* ]] && old_containerd=yes
	done
	[ -n "$old_containerd" ] || unpack+=(containerd)
	has docker-registry || [ -x "$unpacked/usr/bin/docker-registry" ] || unpack+=(docker-registry)
	[ -x "$unpacked/usr/bin/etcd" ] || unpack+=(etcd-server)
fi
vm="" systemd=""
if [ "$mode" = vm ]; then
	ls "$emulated"/boot/vmlinuz-* >/dev/null 2>&1 || vm=missing
	[ -x "$emulated/systemd/usr/lib/systemd/systemd" ] || systemd=missing
fi

[ "${#missing[@]}${#unpack[@]}$vm$systemd" = 00 ] && exit 0
mkdir -p .cache
if [ -z "$(debian)" ]; then
	die "this machine lacks: ${missing[*]} ${unpack[*]} (names of Debian packages); install them and try again"
fi
[ "${#missing[@]}" = 0 ] || [ "$(id -u)" = 0 ] || die "this machine lacks: ${missing[*]}; run as root to have them installed"
[ "${#missing[@]}" = 0 ] || install_missing
for p in "${unpack[@]}"; do unpack_one "$p"; done
[ -z "$vm" ] || unpack_vm
# The emulator's directory is made anew as a whole.
[ -z "$vm$systemd" ] || unpack_systemd
