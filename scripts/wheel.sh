#!/usr/bin/env bash
# `make wheel`: the Python package as a wheel, from the release build, so that nothing is compiled for it. It takes in the shared
# libraries that it needs, and is named for the oldest system that it runs on.
#   scripts/wheel.sh FOLDER            builds first what is missing
#   scripts/wheel.sh FOLDER BUILD      from that build folder as it is
source "$(dirname "$0")/lib.sh"
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=${2:-}
level=$([ -n "$build" ] && echo 1 || echo 9)  # a wheel that is only tried need not be small
cd "$root"
use_cmake
python=$(find_test_python)
[ -n "$python" ] || die "the Python packages that make wheels are missing" "Run: make setup"
if [ -z "$build" ]; then
  build=build
  scripts/build.sh release ingot ingot_python ingot_python_stub
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component python --prefix "$work" --strip >/dev/null
cp python/ingot/*.py python/ingot/py.typed "$work/ingot/"
if [ -f "$build/lib/ingot/ingot.metallib" ]; then cp "$build/lib/ingot/ingot.metallib" "$work/ingot/"; fi
"$python" - "$work" >/dev/null <<'PY'
import sys
from scikit_build_core.build import build_wheel
build_wheel(sys.argv[1], {"wheel.cmake": "false", "wheel.platlib": "true", "wheel.packages": [sys.argv[1] + "/ingot", "python/vllm_apple"]})
PY
if [ "$(uname -s)" = Linux ]; then
  PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair -z "$level" --wheel-dir "$work/repaired" "$work"/ingot-*.whl >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    die "auditwheel could not finish the wheel (its words are above)"
  }
else
  mkdir "$work/repaired" && mv "$work"/ingot-*.whl "$work/repaired/"
fi
for wheel in "$work"/repaired/*.whl; do
  mv "$wheel" "$out/"
  say "$out/$(basename "$wheel")"
done
