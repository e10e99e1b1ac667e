#!/usr/bin/env bash
# An environment with one version of vLLM, kept in the cache between runs; prints its python.
#   scripts/vllm_setup.sh 0.12.0
#   scripts/vllm_setup.sh --background 0.12.0 0.32.0     returns at once and installs at low priority; a later call waits for it
# vLLM is built from its source package without kernels (VLLM_TARGET_DEVICE=empty): the plugin uses none of them, and the
# package is a hundredth of the size. torch comes from PyPI without CUDA's libraries (tests/vllm/left_out.txt).
source "$(dirname "$0")/lib.sh"
usage="usage: scripts/vllm_setup.sh [--background] VERSION..."
[ $# -gt 0 ] || die "$usage"

if [ "$1" = --background ]; then
  shift
  # Without locks (macOS) the later call could not wait for this one.
  have flock || exit 0
  quiet=(nice -n 10)
  if have ionice; then quiet+=(ionice -c 3); fi
  # What fails here is tried again by the call that needs the environment, which also says so.
  for version in "$@"; do "${quiet[@]}" "$root/scripts/vllm_setup.sh" "$version" </dev/null >/dev/null 2>&1 & done
  exit 0
fi

version=$1
# The CUDA runtime is the one library that torch does call where there is no GPU.
case "$version" in
  0.12.0) torch=2.9.0 runtime=nvidia-cuda-runtime-cu12==12.8.90 build_tools=() ;;
  0.32.0) torch=2.13.0 runtime=nvidia-cuda-runtime==13.0.96 build_tools=(setuptools-rust) ;;
  *) die "vLLM $version is not one of the tested versions" "Known: 0.12.0 0.32.0" ;;
esac
uv_version=0.13.7
constraints=$root/tests/vllm/constraints-$version.txt
left_out=$root/tests/vllm/left_out.txt

python=$(find_venv_python)
[ -n "$python" ] || die "no Python 3.10 or newer with the venv module" "Install one (Debian: apt-get install python3-venv)."
base=$(make_cache_dir vllm)
hash=$({ echo "$torch $runtime $uv_version recipe 2" && cat "$constraints" "$left_out" "$root/scripts/torch_without_cuda.py"; } | sha256 /dev/stdin)
dir=$base/$version-${hash:0:12}
is_complete() { [ -f "$dir/complete" ] && [ -x "$dir/bin/python" ]; }
if is_complete; then
  printf '%s\n' "$dir/bin/python"
  exit 0
fi

# One install at a time: whoever comes second waits, and mostly finds it done.
if have flock; then
  exec 9>"$base/lock-$version"
  if ! flock -n 9; then
    say "vLLM $version: waiting for its installation in the background" >&2
    flock 9
  fi
  if is_complete; then
    printf '%s\n' "$dir/bin/python"
    exit 0
  fi
fi
failure=$base/failed-$version.log
if [ -f "$failure" ]; then
  warn "vLLM $version: its last installation failed, now once more; it had said:"
  cat "$failure" >&2
fi

log=$base/install-$version.log
say "vLLM $version: installing into $dir (2 GB; what happens is in $log)" >&2
start=$SECONDS
rm -rf "$base/$version-"*
# Downloads and unpacks side by side, which pip does not. Its cache is gone afterwards: the environment itself is what is kept.
export UV_CACHE_DIR=$dir/uv UV_LINK_MODE=hardlink UV_HTTP_TIMEOUT=300 VIRTUAL_ENV=$dir
uv() { "$dir/bin/uv" "$@"; }
install() {
  local packages
  "$python" -m venv "$dir"
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "uv==$uv_version"
  if [ "$(uname -s)" != Linux ]; then runtime=; fi
  uv pip install -c "$constraints" --override "$left_out" "torch==$torch" ${runtime:+"$runtime"} "setuptools>=77,<81" setuptools_scm wheel \
    packaging ${build_tools[@]+"${build_tools[@]}"} "pytest>=8,<9"
  packages=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  if [ -f "$packages/torch/lib/libtorch_cuda.so" ]; then "$dir/bin/python" "$root/scripts/torch_without_cuda.py" "$packages"; fi
  "$dir/bin/python" -c 'import torch; assert not torch.cuda.is_available()'
  # uv would take the dependencies from the wheel on PyPI, the one with kernels: so the wheel is built first.
  VLLM_VERSION_OVERRIDE=$version VLLM_TARGET_DEVICE=empty PATH=$dir/bin:$PATH "$dir/bin/python" -m pip wheel --quiet \
    --disable-pip-version-check --no-input --no-deps --no-build-isolation --no-binary vllm -w "$dir/wheel" "vllm==$version"
  uv pip install -c "$constraints" --override "$left_out" "torch==$torch" "$dir"/wheel/vllm-*.whl ray
  rm -rf "$dir/uv" "$dir/wheel"
}
# Not as a condition: there `set -e` has no effect, and a step that fails would be passed over.
set +e
(
  set -e
  install
) >"$log" 2>&1
rc=$?
set -e
if [ $rc -ne 0 ]; then
  tail -n 5 "$log" >"$failure"
  cat "$failure" >&2
  rm -rf "$dir"
  die "could not install vLLM $version (the end of the log is above; is this machine offline, or its disk full?)" \
    "Then run the same make command again."
fi
touch "$dir/complete"
rm -f "$failure"
say "vLLM $version: installed in $((SECONDS - start)) s" >&2
printf '%s\n' "$dir/bin/python"
