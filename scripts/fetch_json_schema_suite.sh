#!/usr/bin/env bash
# JSON-Schema-Test-Suite (MIT), from the source archive of PyPI's jsonschema: fetched once, checked by hash, kept in the user's
# cache. A test asks the grammar library what it says.
#   scripts/fetch_json_schema_suite.sh           fetches it when it is not there
#   scripts/fetch_json_schema_suite.sh --path    prints where it is, or would be
source "$(dirname "$0")/lib.sh"

version=4.26.0
url=https://files.pythonhosted.org/packages/b3/fc/e067678238fa451312d4c62bf6e6cf5ec56375422aee02f9cb5f909b3047/jsonschema-$version.tar.gz
hash=0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326

target=$(cache_dir)/json-schema-suite-$version
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
if [ -d "$target/tests" ]; then exit; fi
have curl || die "curl is missing; it fetches JSON-Schema-Test-Suite" "Run: make setup"

make_work_dir .
say "Fetching JSON-Schema-Test-Suite (an archive of 400 KB, once)"
curl -fsSL --retry 2 "$url" -o "$work/archive.tar.gz" || die "could not fetch $url (is this machine offline?)"
[ "$(sha256 "$work/archive.tar.gz")" = "$hash" ] || die "jsonschema-$version.tar.gz is not what was pinned"
tar -xzf "$work/archive.tar.gz" -C "$work" "jsonschema-$version/json" || die "could not unpack the suite into $dir (is the disk full?)"
rm -rf "$target"
mv "$work/jsonschema-$version/json" "$target"
