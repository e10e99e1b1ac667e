#!/usr/bin/env bash
# `make soak`: the long forms of the suite, one after the other until SOAK_MINUTES (60) are over; every part runs even when one before
# it failed. The suite itself runs a seeded sample of each.
#   scripts/soak.sh [PART]...      pairings, loads, prefix, speculation, structured, openapi, replicas, agx, neon, vllm, faults, threads, addresses, fuzz; all by default
source "$(dirname "$0")/lib.sh"
cd "$root"
use_cmake
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL INGOT_SOAK=1
minutes=${SOAK_MINUTES:-60}
if [ $# -eq 0 ]; then set -- pairings loads prefix speculation structured openapi replicas agx neon vllm faults threads addresses fuzz; fi
share=$((minutes * 60 / $#))  # seconds of a part

failed=""
within() { if have timeout; then timeout -k 10 "$@"; else shift && "$@"; fi; }

# The suite's own programs with INGOT_SOAK=1: every product of formats, shapes and ways, every order of threads.
pairings() {
  scripts/build.sh release
  within "$share" ctest --test-dir build -j "$(test_jobs)" --timeout "$share" --output-on-failure -L 'metal|conformance' || return
}

# How soon Ctrl-C and the page's stop are heeded, while the machine does nothing else. Then hundreds of clients for minutes, in each
# mode; every answer is compared with the same request alone.
loads() {
  local mode
  scripts/build.sh release ingot ingot_python ingot_web
  PYTHONPATH=$root/build/python scripts/python_test.sh tests/python/llm_test.py ResultsTest.test_ctrl_c_ends_at_once || return
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/web/page_test.py -k before_our_eyes || return
  for mode in default preempt no-prefix; do
    INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/load_test.py --tiny --seconds $((share / 4)) --mode $mode || return
  done
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/siege_test.py || return  # 10,000 requests, some of which mean harm
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/many_test.py --requests $((share * 20)) || return
}

# 200 ranks that die or stand still under clients that stream; every kind of model across two hosts.
faults() {
  scripts/build.sh release ingot cli_test
  build/tests/cli_test --gtest_brief=1 --gtest_filter='MpiRanks.End*' || return
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/faults_test.py || return
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/hosts_test.py || return
}

# 200 kills of a server that writes its prefix cache; 10,000 conversations through a few MiB.
prefix() {
  scripts/build.sh release ingot
  INGOT_BINARY=$root/build/bin/ingot scripts/python_test.sh tests/server/prefix_test.py || return
}

# 500 requests of random parameters with and without guesses, alone and crowded, on the CPU and on the software device (four
# minutes of a core); a sequence that loses its blocks a hundred times.
speculation() {
  scripts/build.sh release orchestrator_test
  within "$share" build/tests/orchestrator_test --gtest_brief=1 --gtest_filter='Cpu/LlmSpeculationOn.*:Cpu/LlmTiersOn.*' || return
  within "$share" build/tests/orchestrator_test --gtest_brief=1 --gtest_filter='Metal/LlmSpeculationOn.*:Metal/LlmTiersOn.*' || return
}

# Schemas and instances beside llguidance; 300 schemas, 5 answers each, drawn at temperature 1.
structured() {
  scripts/build.sh release ingot grammar_decide
  GRAMMAR_DECIDE=$root/build/tests/grammar_decide scripts/python_test.sh tests/grammar/llguidance_test.py || return
  INGOT_BINARY=$root/build/bin/ingot within "$share" scripts/python_test.sh tests/server/samples_test.py || return
}

# schemathesis, in an environment of its own, over what /openapi.json says.
openapi() {
  local environment
  environment=$(cache_dir)/schemathesis-4.32.5
  scripts/build.sh release ingot
  [ -x "$environment/bin/schemathesis" ] || { python3 -m venv "$environment" && "$environment/bin/pip" install -q schemathesis==4.32.5; } || return
  INGOT_BINARY=$root/build/bin/ingot within "$share" "$environment/bin/python" tests/server/openapi_check.py 200 || return
}

# Servers behind routers and Ray Serve, killed and drained.
replicas() {
  scripts/build.sh release ingot
  INGOT_BINARY=$root/build/bin/ingot within "$share" scripts/replicas_test.sh || return
}

# The CPU device on 64-bit Arm under qemu-user: every product of formats and shapes, whole models, and that no bits depend on neighbours.
neon() {
  local emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu" filter='*-*etal*:*uda*'
  scripts/build.sh release neon_tests
  cmake -DINGOT_NEON_DOTPROD=ON build/neon >/dev/null && cmake --build build/neon -j "$(cores)" --target neon_backend_test neon_engine_test || return
  # shellcheck disable=SC2086  # words on purpose
  within "$share" $emulator build/neon/neon_backend_test --gtest_brief=1 --gtest_filter="$filter" || return
  # shellcheck disable=SC2086
  within "$share" $emulator build/neon/neon_engine_test --gtest_brief=1 --gtest_filter="$filter" || return
}

# Mesa's compiler for Apple GPUs, of which the suite has the table only.
agx() {
  scripts/setup.sh agx && scripts/build.sh release softmetal_cc ingot || return
  scripts/python_test.sh tests/softmetal/agx_compiler_test.py || return
}

# Every way in which vLLM's workers share a model, with both versions and both executors; a Ray cluster of two hosts.
vllm() {
  PYTEST_ADDOPTS="-k 'ranks or hosts'" scripts/vllm_test.sh || return
}

# The race detector over everything with threads.
threads() {
  scripts/build.sh tsan
  within "$share" ctest --test-dir build-tsan -j "$(test_jobs)" --timeout "$share" --output-on-failure -L tsan --repeat until-fail:3 || return
}

# Addresses in the kernels of every instruction set that this machine runs.
addresses() {
  INGOT_CMAKE_ARGS=-DINGOT_ALL_ISAS=ON scripts/build.sh asan tests/backend_test
  within "$share" build-asan/tests/backend_test --gtest_brief=1 --gtest_filter='*cpu*:Cpu*:*LinearTest*-*etal*' || return
}

# Each parser's fuzzer for its share; what it finds stays in build-asan/fuzz.
fuzz() {
  local binary name count
  scripts/build.sh asan
  count=$(find build-asan/fuzz -maxdepth 1 -name 'fuzz_*' | wc -l)
  for binary in build-asan/fuzz/fuzz_*; do
    name=${binary##*/fuzz_}
    "$binary" -max_total_time=$((share / count)) -rss_limit_mb=1024 -timeout=5 -verbosity=0 -print_final_stats=1 \
      -artifact_prefix=build-asan/fuzz/"$name"- build-asan/fuzz/grown/"$name" tests/fuzz/corpus/"$name" || return
  done
}

for part in "$@"; do
  case "$part" in
    pairings | loads | faults | prefix | speculation | structured | openapi | replicas | agx | neon | vllm | threads | addresses | fuzz) ;;
    *) die "unknown part '$part'" "Known: pairings loads faults prefix speculation structured openapi replicas agx neon vllm threads addresses fuzz" ;;
  esac
  say "$part: up to $((share / 60)) minutes"
  "$part" || failed="$failed $part"
done
for part in $failed; do printf 'failed: soak/%s\n' "$part"; done
[ -z "$failed" ]
