#!/usr/bin/env bash
# Fails if the generated documents or go.mod are out of date, a link in a document is broken, or the
# linker cannot remove unused methods.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT

openapi=runtime/serve/apiserver/openapi/documents.zst
cp -r docs "$openapi" "$before"
make docs >/dev/null
if ! diff -ru "$before/docs" docs; then
	echo "verify: docs were out of date; make docs has just updated them, commit the result" >&2
	exit 1
fi
if ! cmp "$before/${openapi##*/}" "$openapi"; then
	echo "verify: the OpenAPI documents were out of date; make docs has just updated them, commit the result" >&2
	exit 1
fi
for module in . runtime/provider manifests/compose; do
	go mod verify -C "$module" >/dev/null || { echo "verify: $module: modules do not match go.sum" >&2; exit 1; }
	go mod tidy -C "$module" -diff || { echo "verify: $module: go.mod is not tidy" >&2; exit 1; }
done
# With a method that is called by a name only known later, as in templates, the linker keeps all methods of all types.
kept=$(CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags -dumpdep -o /dev/null . 2>&1 | grep -m 1 -oE '^\S+ -> \S+ <[^>]*ReflectMethod' || true)
[[ -z $kept ]] || { echo "verify: this makes the program 7 MB larger: $kept" >&2; exit 1; }
while IFS=: read -r file link; do
	[[ $link == http* || -e "$(dirname "$file")/$link" ]] || { echo "verify: $file: broken link $link" >&2; exit 1; }
done < <(git grep -oE '\]\([^)#]+' -- '*.md' | sed 's/\](//')
echo "verify: everything is up to date"
