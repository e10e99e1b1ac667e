#!/usr/bin/env bash
# Replicas of the server: behind routers, as Kubernetes' objects, behind Ray Serve. Their packages are large, so they have environments of their own in the
# cache: one without Ray (80 MB to fetch), one with it (200 MB).
#   scripts/replicas_test.sh [router|kubernetes|ray_serve]...      all by default
source "$(dirname "$0")/lib.sh"
cd "$root"
use_cmake
[ $# -gt 0 ] || set -- router kubernetes ray_serve

base=$(find_venv_python)
[ -n "$base" ] || die "no Python 3.10 or newer with the venv module" "Install one (Debian: apt-get install python3-venv)."

# environment NAME REQUIREMENTS...: $python, of an environment that has them.
environment() {
  local name=$1 hash dir log file
  local options=()
  shift
  for file in "$@"; do options+=(-r "tests/replicas/$file"); done
  hash=$(cd tests/replicas && cat "$@" | sha256 /dev/stdin)
  dir=$(make_cache_dir replicas)/$name-${hash:0:12}
  python=$dir/bin/python
  [ ! -f "$dir/complete" ] || return 0
  say "Installing the packages of tests/replicas ($*) into $dir"
  rm -rf "$dir"
  log=$({ "$base" -m venv "$dir" && "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
    --only-binary :all: "${options[@]}"; } 2>&1) || {
    printf '%s\n' "$log" | tail -n 3 >&2
    rm -rf "$dir"
    die "could not install the packages of tests/replicas (the end of pip's output is above; is this machine offline?)"
  }
  touch "$dir/complete"
}

export INGOT_BINARY="${INGOT_BINARY:-$root/build/bin/ingot}" PYTHONDONTWRITEBYTECODE=1 NO_PROXY=127.0.0.1
for part; do
  case $part in
    router | kubernetes) environment light requirements.txt ;;
    ray_serve) environment ray requirements.txt requirements-ray.txt ;;
    *) die "there is no part $part" "They are router, kubernetes, ray_serve." ;;
  esac
  say "tests/replicas/${part}_test.py"
  "$python" "tests/replicas/${part}_test.py"
done
