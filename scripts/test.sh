#!/usr/bin/env bash
# The whole suite, or the parts named: release asan tsan format. Every part runs even when one before it failed.
#   scripts/test.sh only NAME...      those ctest entries of the release build, which are built already
#   scripts/test.sh build NAME        what that part needs, and no tests
source "$(dirname "$0")/lib.sh"
cd "$root"
only=""
if [ "${1:-}" = only ]; then
  shift
  only="^($(IFS='|' && echo "$*"))\$"
  set -- only
fi
if [ $# -eq 0 ]; then set -- release asan tsan format; fi
use_cmake
scale=${INGOT_TEST_TIME_SCALE:-1}
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
for symbolizer in /usr/lib/llvm-{19,20,18,17,16,15}/bin/llvm-symbolizer; do
  if [ -x "$symbolizer" ]; then
    export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-$symbolizer} TSAN_OPTIONS=${TSAN_OPTIONS:-external_symbolizer_path=$symbolizer}
    break
  fi
done

passed=0
failed=0
failures=""
fail() {
  failed=$((failed + 1))
  failures="$failures $1"
}

# within SECONDS COMMAND...: a part that hangs ends, and says so; and all parts together end within 40 minutes.
within() {
  local seconds=$(($1 * scale)) left=$((2400 * scale - SECONDS)) rc=0
  shift
  if [ $left -lt 1 ]; then left=1; fi
  if [ $seconds -gt $left ]; then seconds=$left; fi
  if have timeout; then
    # On a terminal the command stays in the foreground, so that Ctrl-C reaches it.
    if [ -t 0 ]; then set -- timeout --foreground -k 10 "$seconds" "$@"; else set -- timeout -k 10 "$seconds" "$@"; fi
  fi
  "$@" || rc=$?
  if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
    warn "stopped after $seconds s; on a slow machine: make test INGOT_TEST_TIME_SCALE=3"
  fi
  return $rc
}

# Each part: its folder, seconds for its build and for its tests, and what ctest is told.
about() {
  case "$1" in
    only) echo "build 600 600 -R $only" ;;
    release) echo "build 1200 1200" ;;
    asan) echo "build-asan 1200 1200 -LE command" ;;
    tsan) echo "build-tsan 600 600 -L tsan -LE command" ;;
    *) die "unknown part '$1'" "Known: release asan tsan format" ;;
  esac
}

# build_part NAME DIR SECONDS [CTEST OPTION]...
build_part() {
  local name=$1 dir=$2 seconds=$3 targets=""
  shift 3
  within "$seconds" scripts/build.sh "$name" --configure || return 1
  # With a label only what the tests that carry it need is built.
  if [ $# -gt 0 ]; then
    # shellcheck disable=SC2046  # a list of names
    targets=$(python3 scripts/affected.py --of "$dir" $(ctest --test-dir "$dir" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p'))
  fi
  # shellcheck disable=SC2086  # a list of targets
  within "$seconds" scripts/build.sh "$name" $targets
}

# Tests wait for clients, browsers and timers: meanwhile the next part is built, and gives way to them. What fails there is built
# again, and shown, when its turn has come.
ahead=""
trap '[ -z "$ahead" ] || pkill -P "$ahead" || true' EXIT
build_ahead() {
  case "$1" in
    asan | tsan) nice -n 10 scripts/test.sh build "$1" </dev/null >/dev/null 2>&1 & ahead=$! ;;
  esac
}

# part NAME NEXT DIR BUILD_SECONDS TEST_SECONDS [CTEST OPTION]...
part() {
  local name=$1 next=$2 dir=$3 build_s=$4 test_s=$5 start=$SECONDS rc=0 test launcher="" counts preset=$1
  shift 5
  if [ "$name" = only ]; then
    preset=release
    scripts/build.sh release --configure || { fail release/configure && return; }
  else
    say "$name: building"
    if [ -n "$ahead" ]; then wait "$ahead" || true; fi
    ahead=""
    build_part "$name" "$dir" "$build_s" "$@" || { fail "$name/build" && return; }
  fi
  build_ahead "$next"
  say "$preset: testing"
  rm -rf "$dir"/results && mkdir -p "$dir"/results
  # ThreadSanitizer's runtime wants the address layout it was made for; recent kernels randomize more than older ones know.
  if [ "$name" = tsan ] && have setarch && setarch -R true 2>/dev/null; then launcher="setarch -R"; fi
  # shellcheck disable=SC2086  # a command and its flag
  GTEST_OUTPUT=xml:$root/$dir/results/ within "$test_s" $launcher ctest --test-dir "$dir" -j "$(test_jobs)" --output-on-failure \
    --no-tests=error --output-junit results/ctest.junit "$@" || rc=$?
  counts=$(python3 scripts/count_tests.py "$dir"/results $rc)
  # shellcheck disable=SC2086  # words: passed, failed, skipped, then the names of what failed
  set -- $counts
  passed=$((passed + $1)) failed=$((failed + $2))
  summary="$summary$preset: $1 passed, $2 failed, $3 skipped ($((SECONDS - start)) s)
"
  shift 3
  for test in "$@"; do failures="$failures $preset/$test"; done
}

# Formatters differ between versions, so this part only reports.
format_part() {
  local tool="" files
  if have clang-format-19; then tool=clang-format-19; fi
  [ -n "$tool" ] || return 0
  files=$(git ls-files '*.h' '*.cc' | xargs $tool --dry-run 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
  [ -z "$files" ] || warn "make format would change $(echo "$files" | wc -l | tr -d ' ') files, among them $(echo "$files" | head -n 1)"
}

if [ "$1" = build ]; then
  words=$(about "$2")
  # shellcheck disable=SC2086  # words: folder, seconds for the build, seconds for the tests, options
  set -- "$2" $words
  name=$1 dir=$2 seconds=$3
  shift 4
  build_part "$name" "$dir" "$seconds" "$@"
  exit
fi

summary=""
while [ $# -gt 0 ]; do
  if [ "$1" = format ]; then
    format_part
  else
    words=$(about "$1")
    # shellcheck disable=SC2086  # words
    part "$1" "${2:-}" $words
  fi
  shift
done

printf '\n%s' "$summary"
for name in $failures; do printf 'failed: %s\n' "$name"; done
printf 'core: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
