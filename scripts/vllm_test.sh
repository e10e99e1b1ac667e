#!/usr/bin/env bash
# The Python package and the vLLM plugin: builds the wheel, installs it beside each tested version of vLLM, runs the tests.
#   scripts/vllm_test.sh [VERSION]...      0.12.0 and 0.32.0 by default, side by side; PYTEST_ADDOPTS adds options of pytest
source "$(dirname "$0")/lib.sh"
cd "$root"
if [ $# -eq 0 ]; then set -- 0.12.0 0.32.0; fi
use_cmake
scale=${INGOT_TEST_TIME_SCALE:-1}
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL
# Its packages build the wheel: pinned, and in the folder where the release build found them, so that the compiler cache knows the files.
test_python=$(find_test_python)
[ -n "$test_python" ] || die "the Python packages of the tests are missing" "Run: make setup"

# The compiler under the name that the release build uses, so that what that has compiled is taken from the cache.
gxx=$(find_gxx)
if [ -z "${CXX:-}" ]; then
  if [ -n "$gxx" ] && [ "$gxx" != g++ ]; then export CC=${gxx/g++/gcc} CXX=$gxx; else export CC=cc CXX=c++; fi
fi
# And with its options: nothing is compiled twice.
export SKBUILD_CMAKE_ARGS=--preset=release
CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(cores)}
export CMAKE_BUILD_PARALLEL_LEVEL

# within SECONDS COMMAND...: what hangs ends, and says so.
within() {
  local seconds=$(($1 * scale)) rc=0
  shift
  if have timeout; then set -- timeout -k 10 "$seconds" "$@"; fi
  "$@" || rc=$?
  if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
    warn "stopped after $seconds s; on a slow machine: make test-vllm INGOT_TEST_TIME_SCALE=3"
  fi
  return $rc
}

work=$(mktemp -d)
# shellcheck disable=SC2064  # the name is known now
trap "rm -rf '$work'" EXIT
# Compiled Python files are kept, for many processes import vLLM, but not in this checkout.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$work/pycache

# One wheel serves every environment: they are made by one Python.
build_wheel() {
  local start=$SECONDS
  say "ingot: building the wheel"
  if ! within 1200 "$test_python" -m pip wheel --disable-pip-version-check --no-input --no-deps --no-build-isolation -w "$work" . \
    >"$work/log" 2>&1; then
    tail -n 30 "$work/log" >&2
    die "the wheel could not be built (the end of the output is above)"
  fi
  say "ingot: $(basename "$work"/ingot-*.whl) in $((SECONDS - start)) s"
}

# What `pip install -e .` does differently: the Python files are this checkout's. The default model is fetched on first use. The environment
# sees the tests' packages, so nothing is fetched to build with, and the wheel's build folder serves this one too: nothing is compiled.
package_part() {
  local start=$SECONDS dir=$work/package log=$work/package.log rc=0 packages
  say "ingot: pip install -e ., and the default model"
  packages=$("$test_python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  {
    "$test_python" -m venv --without-pip "$dir" &&
      echo "$packages" >"$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth" &&
      within 600 "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-build-isolation -e . &&
      (
        unset INGOT_DEFAULT_MODEL PYTHONPATH
        export INGOT_CACHE=$dir/cache
        cd "$dir" || exit
        within 300 bin/ingot run -p "The capital of France is" -n 4 --temperature 0 &&
          within 120 bin/python -c 'import ingot; print(ingot.LLM().generate("The capital of France is", max_tokens=4, temperature=0).text)' &&
          bin/python -c 'import ingot, sys; sys.exit(ingot.__file__ != sys.argv[1])' "$root/python/ingot/__init__.py"
      )
  } >"$log" 2>&1 || rc=1
  if [ $rc -ne 0 ] || [ "$(grep -c Paris "$log")" -ne 2 ]; then
    tail -n 30 "$log" >&2
    failed="$failed package" rc=1
  fi
  summary="${summary}package: $([ $rc -eq 0 ] && echo passed || echo failed) ($((SECONDS - start)) s)
"
}

# test_version VERSION: leaves pytest's words in $work/VERSION.log, and its seconds and exit status in $work/VERSION.result.
test_version() {
  local version=$1 python start=$SECONDS rc=0 state
  python=$(within 900 scripts/vllm_setup.sh "$version") || return
  "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --force-reinstall "$work"/ingot-*.whl || return
  say "vLLM $version: testing"
  start=$SECONDS
  state=$(cache_dir)/vllm/state-$version
  # As the documents have it: strict mode on, so that every test is one of it too.
  VLLM_CACHE_ROOT=$state VLLM_CONFIG_ROOT=$state PYTHONPYCACHEPREFIX=${python%/bin/python}/pycache VLLM_APPLE_USE_ENGINE=1 \
    VLLM_METAL_STRICT_NO_MPS=1 within $((900 + 3 * ${INGOT_SOAK:-0} * 900)) "$python" -m pytest -q --durations=8 tests/vllm >"$work/$version.log" 2>&1 || rc=$?
  echo "$((SECONDS - start)) $rc" >"$work/$version.result"
}

failed=""
summary=""
scripts/vllm_setup.sh --background "$@"
build_wheel
package_part
# Side by side: what takes long is one thread each, importing vLLM and starting its engines.
for version in "$@"; do test_version "$version" & done
wait
for version in "$@"; do
  seconds=0 rc=1
  if [ -f "$work/$version.log" ]; then
    say "vLLM $version"
    cat "$work/$version.log"
    read -r seconds rc <"$work/$version.result" || rc=1
  fi
  summary="${summary}vLLM $version: $([ "$rc" -eq 0 ] && echo passed || echo failed) ($seconds s)
"
  [ "$rc" -eq 0 ] || failed="$failed $version"
done
printf '\n%s' "$summary"
for name in $failed; do printf 'failed: vllm/%s\n' "$name"; done
[ -z "$failed" ]
