#!/usr/bin/env bash
# Parses Metal host code against Apple's own metal-cpp headers, for a Mac, without one: syntax and types only.
#   check_host.sh [--must-fail] [-I dir]... file.cc...
# The headers are found in $INGOT_METAL_CPP, or where scripts/fetch_metal_cpp.sh put them. Exit 77: they are not there.
set -euo pipefail
must_fail=0
if [ "${1:-}" = --must-fail ]; then must_fail=1 && shift; fi
here=$(cd "$(dirname "$0")" && pwd)
headers=${INGOT_METAL_CPP:-$("$here/../../scripts/fetch_metal_cpp.sh" --path)}
if [ ! -f "$headers/Metal/Metal.hpp" ]; then
  echo "Apple's metal-cpp headers are not at $headers; run scripts/fetch_metal_cpp.sh" >&2
  exit 77
fi
clang=${SOFTMETAL_CLANG:-clang++-19}
command -v "$clang" >/dev/null || { echo "no $clang here" >&2; exit 77; }

# The C++ library of this system serves: only its declarations are read.
system=()
while read -r dir; do system+=(-isystem "$dir"); done < <("$clang" -E -x c++ -v /dev/null 2>&1 >/dev/null |
  sed -n '/^#include </,/^End/p' | sed -n 's/^ //p' | grep -v '/lib/llvm\|/lib/clang')
# __nonnull is a macro of Apple's clang and a function of glibc's headers.
flags=(-target arm64-apple-macos14 -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers
  -U__nonnull -D_GNU_SOURCE -nostdinc++ -isystem "$here/stubs" -isystem "$headers" -I "$here/../include" "${system[@]}")
while [ "${1:-}" = -I ]; do flags+=(-I "$2") && shift 2; done
# As one file, as builds take them: what all include is read once.
status=0
realpath "$@" | sed 's/.*/#include "&"/' | "$clang" "${flags[@]}" -fsyntax-only -x c++ - || status=1
[ $status -eq $must_fail ]
