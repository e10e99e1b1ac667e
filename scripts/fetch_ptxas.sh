#!/usr/bin/env bash
# NVIDIA's assembler ptxas, from PyPI's nvidia-cuda-nvcc-cu12: fetched once, checked by hash, kept in the user's cache. A test
# takes the CUDA device's kernels through it to see that nothing spills; no GPU is needed for that.
#   scripts/fetch_ptxas.sh           fetches it when it is not there
#   scripts/fetch_ptxas.sh --path    prints where it is, or would be
source "$(dirname "$0")/lib.sh"

target=${SOFTMETAL_PTXAS:-$(cache_dir)/ptxas-12.9.86}
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
if [ -x "$target" ]; then exit; fi
[ -z "${SOFTMETAL_PTXAS:-}" ] || die "SOFTMETAL_PTXAS names no program: $target" "Unset it to use the pinned one."
[ "$(uname -sm)" = "Linux x86_64" ] || die "ptxas is pinned for Linux on x86-64 alone"

python=$(find_pip_python)
[ -n "$python" ] || die "python3 with pip is missing; it fetches NVIDIA's ptxas" "Run: make setup"
make_work_dir .
say "Fetching NVIDIA's ptxas (a wheel of 40 MB, once)"
fetch_wheel ptxas.txt "$work" --quiet ||
  die "could not fetch nvidia-cuda-nvcc-cu12 from PyPI (pip's words are above; is this machine offline?)"
"$python" - "$work" <<'PY' || die "could not unpack ptxas into $dir (is the disk full?)"
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    (work / "ptxas").write_bytes(wheel.read("nvidia/cuda_nvcc/bin/ptxas"))
PY
chmod +x "$work/ptxas"
mv "$work/ptxas" "$target"
