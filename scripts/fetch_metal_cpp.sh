#!/usr/bin/env bash
# Apple's metal-cpp headers (Apache-2.0) and those of JACCL (MIT), from the macOS wheel of PyPI's mlx-metal: fetched once, checked by
# hash, kept in the user's cache. Host code of the Metal device is parsed against them on Linux.
#   scripts/fetch_metal_cpp.sh           fetches them when they are not there
#   scripts/fetch_metal_cpp.sh --path    prints where they are, or would be
source "$(dirname "$0")/lib.sh"

target=${INGOT_METAL_CPP:-$(cache_dir)/metal-cpp-0.32.4}
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
if [ -f "$target/Metal/Metal.hpp" ] && { [ -f "$target/jaccl/jaccl.h" ] || [ -n "${INGOT_METAL_CPP:-}" ]; }; then exit; fi
[ -z "${INGOT_METAL_CPP:-}" ] || die "INGOT_METAL_CPP names a folder without Metal/Metal.hpp: $target" "Unset it to use the pinned one."

python=$(find_pip_python)
[ -n "$python" ] || die "python3 with pip is missing; it fetches Apple's metal-cpp headers" "Run: make setup"
make_work_dir .
say "Fetching Apple's metal-cpp headers (a wheel of 45 MB, once)"
fetch_wheel metal_cpp.txt "$work" --quiet --platform macosx_14_0_arm64 ||
  die "could not fetch mlx-metal from PyPI (pip's words are above; is this machine offline?)"
"$python" - "$work" <<'PY' || die "could not unpack the headers into $dir (is the disk full?)"
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    for name in wheel.namelist():
        for folder, to in (("mlx/include/metal_cpp/", ""), ("mlx/include/jaccl/", "jaccl/")):
            if name.startswith(folder) and not name.endswith("/"):
                path = work / "headers" / (to + name.removeprefix(folder))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(name))
PY
if [ -d "$target" ]; then  # of a time without JACCL's; somebody may be reading the others
  rm -rf "$target/jaccl"
  mv "$work/headers/jaccl" "$target/jaccl"
else
  mv "$work/headers" "$target"
fi
