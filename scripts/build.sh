#!/usr/bin/env bash
# Configures a preset when that is needed, then builds it.
#   scripts/build.sh PRESET [TARGET]...      PRESET: release, debug, asan, tsan; all targets by default
#   scripts/build.sh PRESET --configure      configures only
source "$(dirname "$0")/lib.sh"
preset=$1
shift
cd "$root"

case "$preset" in
  release) dir=build ;;
  debug | asan | tsan) dir=build-$preset ;;
  *) die "unknown preset '$preset'" "Known: release, debug, asan, tsan" ;;
esac

use_cmake

# The presets' compilers, replaced where this system has others. CC and CXX in the environment win for release and debug.
options=()
gxx=$(find_gxx)
use_gxx() { options+=("-DCMAKE_C_COMPILER=${gxx/g++/gcc}" "-DCMAKE_CXX_COMPILER=$gxx"); }
case "$preset" in
  release | debug)
    if [ -z "${CXX:-}" ] && [ -n "$gxx" ] && [ "$gxx" != g++ ]; then use_gxx; fi
    ;;
  asan | tsan)
    clangxx=$(find_clangxx)
    if [ -n "$clangxx" ]; then
      if [ "$clangxx" != clang++-19 ]; then
        options+=("-DCMAKE_C_COMPILER=${clangxx/++/}" "-DCMAKE_CXX_COMPILER=$clangxx")
      fi
    elif [ "$(uname -s)" = Darwin ]; then
      options+=(-DCMAKE_C_COMPILER=cc -DCMAKE_CXX_COMPILER=c++ -DINGOT_BUILD_FUZZERS=OFF)
      say "No clang with libFuzzer here: the $preset suite runs without the fuzzers"
    else
      use_gxx
      options+=(-DINGOT_BUILD_FUZZERS=OFF)
      say "No clang++ 15 or newer here: the $preset suite is built by $gxx, without the fuzzers"
    fi
    ;;
esac
# The Python module is built where the tests' Python is, by the release build alone: a sanitizer cannot be loaded into Python.
test_python=$(find_test_python)
if [ "$preset" = release ] && [ -n "$test_python" ] && has_python_headers "$test_python"; then
  options+=(-DINGOT_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$test_python")
fi
if [ -n "${INGOT_CMAKE_ARGS:-}" ]; then
  # shellcheck disable=SC2206  # words on purpose
  options+=($INGOT_CMAKE_ARGS)
fi

# A cache folder that cannot be written to must not stop the build.
if have ccache; then
  ccache_dir=$(ccache --get-config cache_dir 2>/dev/null) || ccache_dir=""
  if [ -z "$ccache_dir" ] || ! mkdir -p "$ccache_dir" 2>/dev/null || [ ! -w "$ccache_dir" ]; then export CCACHE_DISABLE=1; fi
fi

# ninja re-runs CMake when a CMakeLists.txt changes, but does not see the presets and the options above.
stamp=$(cat CMakePresets.json && echo "${options[*]-} ${CC:-} ${CXX:-}")
if [ ! -f "$dir"/build.ninja ] || [ "$stamp" != "$(cat "$dir"/.configured 2>/dev/null)" ]; then
  mkdir -p "$dir" || die "cannot write to $root/$dir"
  if ! cmake --preset "$preset" ${options[@]+"${options[@]}"} >"$dir"/configure.log 2>&1; then
    tail -n 25 "$dir"/configure.log >&2
    die "CMake could not configure the $preset preset (its last words are above, all of them in $dir/configure.log)"
  fi
  printf '%s\n' "$stamp" >"$dir"/.configured
fi
if [ "${1:-}" = --configure ]; then
  ninja -C "$dir" build.ninja >/dev/null  # configures again when a CMakeLists.txt changed
  exit 0
fi

# On a terminal ninja's one moving line; in a log only what fails.
failed() { die "the $preset build failed (see above)" "To see one command at a time: ninja -C $dir -v -j 1"; }
if [ -t 1 ]; then
  ninja -C "$dir" -j "$(cores)" "$@" || failed
elif ! ninja -C "$dir" -j "$(cores)" "$@" >"$dir"/build.log 2>&1; then
  grep -v '^\[[0-9]*/[0-9]*\] ' "$dir"/build.log >&2
  failed
fi
