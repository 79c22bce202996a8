#!/bin/sh
# A start-up script (attribute startup-script) of Compute Engine instances with Debian or Container-Optimized OS. At each boot
# it makes sure that the release of runonce is installed that the attributes name, and starts runonce-gce.service:
#
#   runonce-url     where the archive runonce-VERSION-linux-ARCH.tar.gz is
#   runonce-sha256  its checksum, in hex
#
# See docs/migrating/konlet.md.
set -eu
root=${DESTDIR-} # for tests

attribute() {
	curl -sSf --retry 9 --retry-connrefused -H 'Metadata-Flavor: Google' \
		"http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes/$1"
}

prefix=/usr/local
cos=false
if grep -q '^ID=cos$' "$root/etc/os-release"; then
	cos=true
	# /usr is read-only there, /etc is empty at each boot, and of /var only a few directories may have programs.
	prefix=/var/lib/google/runonce
fi

sum=$(attribute runonce-sha256)
if [ "$(cat "$root$prefix/archive.sha256" 2>/dev/null)" != "$sum" ]; then
	mkdir -p "$root$prefix"
	archive=$root$prefix/archive.tar.gz
	curl -sSfL --retry 5 -o "$archive" "$(attribute runonce-url)"
	echo "$sum  $archive" | sha256sum -c --quiet -
	tar -C "$root$prefix" -xzf "$archive"
	rm "$archive"
	echo "$sum" >"$root$prefix/archive.sha256"
fi

mkdir -p "$root/etc/systemd/system"
sed "s|/usr/local/|$prefix/|g" "$root$prefix/lib/systemd/system/runonce-gce.service" >"$root/etc/systemd/system/runonce-gce.service"
if $cos; then
	mkdir -p "$root/etc/runonce"
	# The shim, a program, is in this directory.
	echo "root: $prefix/data" >"$root/etc/runonce/config.yaml"
	# The agent opens the machine's firewall, which lets in SSH only.
	for protocol in tcp udp icmp; do
		for chain in INPUT FORWARD; do
			iptables -w -C $chain -p $protocol -j ACCEPT 2>/dev/null || iptables -w -A $chain -p $protocol -j ACCEPT
		done
	done
fi
# The agent must not start the container a second time, nor docker what the agent has started before.
if systemctl cat konlet-startup.service >/dev/null 2>&1; then
	systemctl mask --runtime --now konlet-startup.service
	docker ps -aq --filter name=^/klt- | xargs -r docker rm -f
fi
systemctl daemon-reload
systemctl enable runonce-gce.service
systemctl restart --no-block runonce-gce.service
