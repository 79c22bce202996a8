#!/usr/bin/env bash
# Builds the release of the last commit for amd64 in two directories, once with the build cache of
# this machine and once with an empty one, and fails unless the files are the same.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
first=$tmp/a second=$tmp/another/directory
mkdir -p "$tmp/another" "$tmp/cache"
for dir in "$first" "$second"; do
	git clone -q --no-hardlinks . "$dir"
	mkdir -p "$dir/.cache/bin"
	# The tools do not end up in the release.
	[ ! -x .cache/bin/nfpm ] || cp .cache/bin/nfpm "$dir/.cache/bin/"
done
make -C "$first" release ARCH=amd64
GOCACHE=$tmp/cache make -C "$second" release ARCH=amd64
diff "$first/dist/SHA256SUMS" "$second/dist/SHA256SUMS"
(cd "$second/dist" && sha256sum --quiet -c SHA256SUMS)
for file in "$first"/dist/*; do
	cmp "$file" "$second/dist/${file##*/}"
done
[ "$(find "$first/dist" -type f | wc -l)" -ge 9 ] || { echo "test-release: files are missing" >&2; exit 1; }
echo "test-release: two builds of the release are the same"
