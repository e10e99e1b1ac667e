#!/usr/bin/env bash
# Installs what is missing, and only that: nothing missing, nothing asked, no network.
#   scripts/setup.sh build    what building and `make run` need
#   scripts/setup.sh quick    ... and the release suite: Python packages in an environment of their own, curl, a browser
#   scripts/setup.sh test     ... and the sanitizer suites
#   scripts/setup.sh bench    ... and the benchmarks
#   scripts/setup.sh agx      ... and what `make agx-report` builds Mesa's compiler with
#   scripts/setup.sh format   clang-format alone
source "$(dirname "$0")/lib.sh"
goal=${1:-build}

# What is missing, as package names of the system at hand.
missing=""
need() { case " $missing " in *" $1 "*) ;; *) missing="$missing $1" ;; esac; }

# header | Debian package | Homebrew formula | goal that needs it
headers='fmt/core.h|libfmt-dev|fmt|build
nlohmann/json.hpp|nlohmann-json3-dev|nlohmann-json|build
CLI/CLI.hpp|libcli11-dev|cli11|build
pcre2.h|libpcre2-dev|pcre2|build
utf8proc.h|libutf8proc-dev|utf8proc|build
histedit.h|libedit-dev|libedit|build
boost/asio.hpp|libboost-dev|boost|build
openssl/ssl.h|libssl-dev|openssl@3|build
curl/curl.h|libcurl4-openssl-dev|curl|build
gtest/gtest.h|libgtest-dev|googletest|build
gmock/gmock.h|libgmock-dev|googletest|build
benchmark/benchmark.h|libbenchmark-dev|google-benchmark|bench'

# missing_headers COMPILER [FLAG]...: those of the goal that it does not find, in one compiler run. Without a compiler: all.
missing_headers() {
  local header deb brew when source=""
  while IFS='|' read -r header deb brew when; do
    [ "$when" = build ] || [ "$when" = "$goal" ] || continue
    source="$source
#if !__has_include(<$header>)
MISSING $header|$deb|$brew
#endif"
  done <<<"$headers"
  if [ $# -gt 0 ] && have "$1"; then
    printf '%s\n' "$source" | "$@" -x c++ -std=c++20 -E -P - 2>/dev/null | sed -n 's/^MISSING //p'
  else
    printf '%s\n' "$source" | sed -n 's/^MISSING //p'
  fi
}

# The goals that run the Python tests.
runs_python() { [ "$goal" = quick ] || [ "$goal" = test ]; }

# as_root COMMAND...: directly, or through sudo; never waits for a password nobody can type.
can_be_root() { [ "$(id -u)" -eq 0 ] || { have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

by_hand() { echo "apt-get update && apt-get install -y --no-install-recommends$missing"; }

# candidate PACKAGE: the version apt would install, without epoch; nothing when there is none.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9].*\)/\2/p'; }

# The newest clang this distribution has: Debian 12 and Ubuntu 24.04 have 19, which the presets name; Ubuntu 22.04 ends at 15.
clang_packages() {
  local version
  for version in 19 20 18 17 16 15; do
    if [ -n "$(candidate "clang-$version")" ]; then
      printf ' clang-%s' "$version"
      if [ -n "$(candidate "libclang-rt-$version-dev")" ]; then printf ' libclang-rt-%s-dev' "$version"; fi
      return
    fi
  done
}

# Puts real names for g++ (Ubuntu 22.04's plain one is 11), for Boost (Debian 12's plain one is 1.74) and for clang++ (none will do: g++ builds the sanitizer suites).
resolve_versions() {
  local version
  version=$(candidate g++)
  if [ -n "$version" ] && [ "${version%%.*}" -lt 12 ]; then missing=$(echo "$missing " | sed 's/ g++ / g++-12 /; s/ $//'); fi
  if [ -n "$(candidate libboost1.81-dev)" ]; then missing=${missing/ libboost-dev/ libboost1.81-dev}; fi
  missing=${missing/ clang++/$(clang_packages)}
}

setup_debian() {
  local gxx header deb brew log python
  gxx=$(find_gxx)
  if [ "$goal" = format ]; then
    # 19 where the distribution has it: other versions wrap differently.
    if ! have clang-format-19; then
      if [ -n "$(candidate clang-format-19)" ]; then need clang-format-19; else have clang-format || need clang-format; fi
    fi
  else
    [ -n "$gxx" ] || need g++
    have cmake || need cmake
    have ninja || need ninja-build
    have ccache || need ccache
    have pkg-config || need pkg-config
    while IFS='|' read -r header deb brew; do
      if [ -n "$header" ]; then need "$deb"; fi
    done <<<"$(missing_headers ${gxx:+"$gxx"})"
    have python3 || need python3
    if [ -z "$(find_pip_python)" ] && { [ ! -f "$("$root/scripts/fetch_model.sh" --path)" ] || [ -z "$(find_cmake)" ]; }; then
      need python3-pip
    fi
    # 19 compiles the Metal kernels too; an older one will do for the sanitizer suites alone.
    if { [ "$goal" = test ] || [ "$goal" = agx ]; } && ! have clang++-19 && { [ -z "$(find_clangxx)" ] || [ -n "$(candidate clang-19)" ]; }; then
      need clang++
    fi
    if [ "$goal" = agx ]; then
      have curl || need curl
      have bison || need bison
      have flex || need flex
      have glslangValidator || need glslang-tools
      have xz || need xz-utils
      pkg-config --exists libdrm 2>/dev/null || need libdrm-dev
      pkg-config --exists zlib 2>/dev/null || need zlib1g-dev
      pkg-config --exists expat 2>/dev/null || need libexpat1-dev
      if [ -z "$(find_venv_python)" ]; then need python3-venv; fi
    fi
    if runs_python; then
      have curl || need curl
      if [ -z "$(find_test_python)$(find_venv_python)" ]; then need python3-venv; fi
      # The headers, for the Python module; a Python that is not the distribution's brings its own.
      python=$(find_venv_python)
      if [ -z "$python" ] || ! has_python_headers "$python"; then need python3-dev; fi
      # A model shared by several processes (--tp); the program builds and runs without it.
      have mpirun || need openmpi-bin
      # The CPU's kernels for 64-bit Arm, compiled and run under an emulator.
      if [ "$(uname -m)" = x86_64 ]; then
        have aarch64-linux-gnu-g++ || need g++-aarch64-linux-gnu
        have qemu-aarch64 || need qemu-user
      fi
      have ip || need iproute2  # its hosts, in a test, are network namespaces
      compgen -G '/usr/lib/*/openmpi/include/mpi.h' >/dev/null || need libopenmpi-dev
      # Ubuntu has Chromium as a snap only: there the test of the chat page is skipped unless one is installed by hand.
      if ! grep -qs '^ID=ubuntu' /etc/os-release; then
        have chromium || need chromium
        have chromedriver || need chromium-driver
      fi
    fi
  fi
  if [ "$missing" = " clang++" ] && [ -n "$(candidate g++)" ]; then resolve_versions; fi
  [ -n "$missing" ] || return 0

  if ! can_be_root; then
    resolve_versions
    die "missing packages:$missing; installing them needs root, and sudo is not available here" "Run as root: $(by_hand)" \
      "Then run the same make command again."
  fi
  say "Installing:$missing"
  log=$(mktemp)
  # shellcheck disable=SC2064  # the name is known now
  trap "rm -f '$log'" EXIT
  # Without network the lists cannot be renewed, but the packages may still be at hand: the install decides.
  as_root apt-get update -qq >"$log" 2>&1 || true
  resolve_versions
  # shellcheck disable=SC2086  # a list of package names
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 \
    install $missing >>"$log" 2>&1; then
    tail -n 3 "$log" >&2
    die "could not install:$missing (the end of apt's output is above; is this machine offline?)" \
      "By hand, as root: $(by_hand)" "Then run the same make command again."
  fi
}

setup_macos() {
  local header deb brew
  xcode-select -p >/dev/null 2>&1 ||
    die "Apple's command line tools are missing" "Run: xcode-select --install" "Then run the same make command again."
  have brew || die "Homebrew is missing" "Install it as https://brew.sh says, then run the same make command again."
  if [ "$goal" = format ]; then
    have clang-format || need clang-format
  else
    have cmake || need cmake
    have ninja || need ninja
    have ccache || need ccache
    have pkg-config || need pkgconf
    while IFS='|' read -r header deb brew; do
      if [ -n "$header" ]; then need "$brew"; fi
    done <<<"$(missing_headers c++ "-I$(brew --prefix)/include" "-I$(brew --prefix)/opt/openssl@3/include")"
    [ -n "$(find_pip_python)" ] || need python3
    # A browser is left to its owner: without chromium and chromedriver the test of the chat page is skipped.
    if runs_python && [ -z "$(find_test_python)$(find_venv_python)" ]; then need python3; fi
    if runs_python && ! have mpirun; then need open-mpi; fi
  fi
  [ -n "$missing" ] || return 0
  say "Installing:$missing"
  # shellcheck disable=SC2086  # a list of formula names
  HOMEBREW_NO_ENV_HINTS=1 HOMEBREW_NO_INSTALL_CLEANUP=1 NONINTERACTIVE=1 brew install --quiet $missing ||
    die "Homebrew could not install:$missing (is this machine offline?)" "By hand: brew install$missing"
}

# Other systems: say what is needed, in words any package manager understands.
check_only() {
  local gxx header deb brew
  gxx=$(find_gxx)
  [ -n "$gxx" ] || need "g++>=12"
  [ -n "$(find_cmake)" ] || need "cmake>=3.25"
  for tool in ninja ccache pkg-config python3; do have "$tool" || need "$tool"; done
  if runs_python; then have curl || need curl; fi
  while IFS='|' read -r header deb brew; do
    if [ -n "$header" ]; then need "$brew(<$header>)"; fi
  done <<<"$(missing_headers ${gxx:+"$gxx"})"
  [ -z "$missing" ] || die "missing on this system:$missing" \
    "Ingot installs by itself on Debian, Ubuntu and macOS only: please install these with your package manager."
}

# A distribution's CMake may be too old for the presets: then a pinned one goes into the cache, the system is left alone.
setup_cmake() {
  [ -z "$(find_cmake)" ] || return 0
  local dir python log
  dir=$(make_cache_dir tools)/cmake
  python=$(find_pip_python)
  say "This system's CMake is older than 3.25: fetching one into $dir"
  rm -rf "$dir"
  log=$("$python" -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir --no-deps --only-binary :all: \
    --require-hashes -r "$root/scripts/cmake.txt" --target "$dir" 2>&1) || printf '%s\n' "$log" | tail -n 3 >&2
  [ -n "$(find_cmake)" ] || die "could not fetch CMake 3.25 or newer from PyPI (is this machine offline?)" \
    "Install it by hand (https://cmake.org/download) and put it first in PATH."
}

# The tests' Python packages, pinned by hash, in an environment of their own in the cache.
setup_venv() {
  [ -z "$(find_test_python)" ] || return 0
  local dir python log
  python=$(find_venv_python)
  [ -n "$python" ] || die "no Python 3.10 or newer with the venv module" "Install one (Debian: apt-get install python3-venv)."
  make_cache_dir venv >/dev/null
  dir=$(test_venv_dir)
  say "Installing the Python packages of the tests into $dir"
  rm -rf "$dir"
  log=$({ "$python" -m venv "$dir" && "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --no-deps --no-compile --only-binary :all: --require-hashes -r "$root/tests/requirements.txt"; } 2>&1) || {
    printf '%s\n' "$log" | tail -n 3 >&2
    rm -rf "$dir"
    die "could not install the packages of tests/requirements.txt (the end of pip's output is above; is this machine offline?)" \
      "Then run the same make command again."
  }
  touch "$dir/complete"
}

if [ "$(uname -s)" = Darwin ]; then
  setup_macos
elif have apt-get; then
  setup_debian
else
  check_only
fi
[ "$goal" = format ] || setup_cmake
# Without it the chat page shows formulas as they were written.
[ "$goal" = format ] || "$root/scripts/fetch_katex.sh" || warn "the chat page will not set formulas"
# Without them the check of the Metal host code is skipped, nothing else.
if [ "$goal" = test ] && [ "$(uname -s)" != Darwin ]; then
  "$root/scripts/fetch_metal_cpp.sh" || warn "the Metal host code will not be checked against Apple's headers"
fi
# Without it the spills of the CUDA device's kernels are not looked for.
if [ "$goal" = test ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
  "$root/scripts/fetch_ptxas.sh" || warn "the CUDA device's kernels will not be checked for spills"
fi
if runs_python; then
  setup_venv
  "$root/scripts/fetch_sdists.sh" || warn "the clients' own tests will be skipped"
  # Without it the grammar library is not held against the suite.
  "$root/scripts/fetch_json_schema_suite.sh" || warn "the test with JSON-Schema-Test-Suite will be skipped"
fi
