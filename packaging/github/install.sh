# Installs the release $VERSION of runonce from $RELEASES in /usr/local, with runc, crun and the CNI plugins. The file with the
# checksums of the release must have the digest $SHA256. Without a version, runonce must be there.
set -euo pipefail

fail() {
  echo "::error title=runonce::$1"
  exit 4
}

if [ -z "$VERSION" ]; then
  command -v runonce >/dev/null || fail 'runonce is not installed on this runner: give the input "version"'
  exit 0
fi
[ -n "$SHA256" ] || fail 'the input "sha256" is missing: it is that of the SHA256SUMS of the release'
case "$(uname -m)" in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac

archive="runonce-$VERSION-linux-$arch.tar.gz"
cd "$(mktemp -d)"
for file in SHA256SUMS "$archive"; do
  curl --fail --silent --show-error --location --retry 5 --output "$file" "$RELEASES/$VERSION/$file" || fail "could not download $RELEASES/$VERSION/$file"
done
echo "$SHA256  SHA256SUMS" | sha256sum --check --quiet || fail "SHA256SUMS of release $VERSION is not the one with the digest $SHA256"
grep --fixed-strings "  $archive" SHA256SUMS | sha256sum --check --quiet || fail "$archive is not the one in SHA256SUMS"
sudo tar -C "${PREFIX:-/usr/local}" -xzf "$archive"
