#!/usr/bin/env bash
# An environment with one version of vLLM, kept in the cache between runs; prints its python.
#   scripts/vllm_setup.sh 0.12.0
# vLLM is built from its source package without kernels (VLLM_TARGET_DEVICE=empty): the plugin uses none of them, and the
# package is a hundredth of the size. torch comes from PyPI with all it asks for, which is most of the gigabytes.
source "$(dirname "$0")/lib.sh"
version=${1:?usage: scripts/vllm_setup.sh VERSION}
case "$version" in
  0.12.0) torch=2.9.0 build_tools=() ;;
  0.32.0) torch=2.13.0 build_tools=(setuptools-rust) ;;
  *) die "vLLM $version is not one of the tested versions" "Known: 0.12.0 0.32.0" ;;
esac
uv_version=0.13.7
constraints=$root/tests/vllm/constraints-$version.txt

python=$(find_venv_python)
[ -n "$python" ] || die "no Python 3.10 or newer with the venv module" "Install one (Debian: apt-get install python3-venv)."
base=$(make_cache_dir vllm)
hash=$({ echo "$torch $uv_version recipe 1" && cat "$constraints"; } | sha256 /dev/stdin)
dir=$base/$version-${hash:0:12}
if [ -f "$dir/complete" ] && [ -x "$dir/bin/python" ]; then
  printf '%s\n' "$dir/bin/python"
  exit 0
fi

log=$base/install-$version.log
say "vLLM $version: installing into $dir (some gigabytes; what happens is in $log)" >&2
start=$SECONDS
rm -rf "$base/$version-"*
# Downloads and unpacks side by side, which pip does not; the files of its cache and of the environment are one.
export UV_CACHE_DIR=$base/uv UV_LINK_MODE=hardlink UV_HTTP_TIMEOUT=300 VIRTUAL_ENV=$dir
uv() { "$dir/bin/uv" "$@"; }
install() {
  "$python" -m venv "$dir"
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "uv==$uv_version"
  uv pip install -c "$constraints" "torch==$torch" "setuptools>=77,<81" setuptools_scm wheel cmake packaging \
    ${build_tools[@]+"${build_tools[@]}"} "pytest>=8,<9"
  # uv would take the dependencies from the wheel on PyPI, the one with kernels: so the wheel is built first.
  VLLM_VERSION_OVERRIDE=$version VLLM_TARGET_DEVICE=empty PATH=$dir/bin:$PATH "$dir/bin/python" -m pip wheel --quiet \
    --disable-pip-version-check --no-input --no-deps --no-build-isolation --no-binary vllm -w "$dir/wheel" "vllm==$version"
  uv pip install -c "$constraints" "torch==$torch" "$dir"/wheel/vllm-*.whl
}
if ! (set -e && install) >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  rm -rf "$dir"
  die "could not install vLLM $version (the end of the log is above; is this machine offline, or its disk full?)" \
    "Then run the same make command again."
fi
touch "$dir/complete"
say "vLLM $version: installed in $((SECONDS - start)) s" >&2
printf '%s\n' "$dir/bin/python"
