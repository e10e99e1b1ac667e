#!/usr/bin/env bash
# The source archives of PyPI's openai and anthropic (both Apache-2.0), for the tests in them: fetched once, checked by hash, kept in the
# user's cache. tests/server/sdist_test.py runs them against the server.
#   scripts/fetch_sdists.sh           fetches what is not there
#   scripts/fetch_sdists.sh --path    prints where they are, or would be
source "$(dirname "$0")/lib.sh"

# name-version | its place on files.pythonhosted.org | SHA-256
archives='openai-3.49.0|83/8f/adc3e9f7077c16a2417eebb219df2f5933f4fa532fab143c6bbb1c287c67|44badf2bea9bcd643dafa0bc4d5a109a14395889219fd68b8560322288196e96
anthropic-2.8.0|75/e6/aabc3c266a0aaf38fa542648585741fce9616ba4cd034ddde74548f790a0|d34e389ba0544cd64e033eb7475f46cc1ac6f2a388cdcd472b33ad4ac29ef40c'

target=$(cache_dir)/sdists
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
while IFS='|' read -r name place hash; do
  if [ -d "$target/$name/tests" ]; then continue; fi
  have curl || die "curl is missing; it fetches the tests of $name" "Run: make setup"
  make_work_dir sdists
  say "Fetching the tests of $name (an archive of 2 MB, once)"
  url=https://files.pythonhosted.org/packages/$place/$name.tar.gz
  curl -fsSL --retry 2 "$url" -o "$work/archive.tar.gz" || die "could not fetch $url (is this machine offline?)"
  [ "$(sha256 "$work/archive.tar.gz")" = "$hash" ] || die "$name.tar.gz is not what was pinned"
  tar -xzf "$work/archive.tar.gz" -C "$work" "$name/tests" || die "could not unpack $name into $dir (is the disk full?)"
  rm -rf "${target:?}/$name"
  mv "$work/$name" "$target/$name"
  rm -rf "$work"
done <<<"$archives"
