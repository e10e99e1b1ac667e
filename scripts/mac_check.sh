#!/usr/bin/env bash
# What a person with a Mac runs: builds, checks the Metal device on the real GPU, measures, and writes a report to attach.
#   scripts/mac_check.sh [MODEL]        MODEL: a GGUF file or a Hugging Face folder; default: the default model
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
[ "$(uname -s)" = Darwin ] || die "this checks a real Apple GPU: run it on a Mac"
have xcrun || die "xcrun is missing" "install Xcode or its command line tools: xcode-select --install"

model=${1:-}
report=$root/mac-check-$(date +%Y%m%d-%H%M%S).txt
cd "$root"
"$root/scripts/setup.sh" test
"$root/scripts/fetch_metal_cpp.sh"
if [ -z "$model" ]; then
  "$root/scripts/fetch_model.sh"
fi
cmake --preset release
ninja -C build

# Every part runs, whatever became of the one before: the report shows all of them.
part() {
  printf '\n== %s\n' "$1"
  shift
  "$@" || { printf 'FAILED (%s)\n' "$?"; }
}
set +e
{
  printf 'Ingot on %s\n' "$(sysctl -n machdep.cpu.brand_string)"
  sw_vers
  system_profiler SPHardwareDataType SPDisplaysDataType | grep -E 'Model|Chip|Memory|Cores|Metal'
  git log -1 --format='commit %h'
  part "what this machine has" build/bin/ingot doctor
  part "operations against the reference" build/tests/backend_test --gtest_brief=1 --gtest_filter='*metal*:-*Sampling*'
  part "sampling" build/tests/backend_test --gtest_brief=1 --gtest_filter='*Sampling*metal*'
  part "models, the step contract, neighbours" env INGOT_SOAK=1 build/tests/engine_test --gtest_brief=1 --gtest_filter='*etal*'
  # Before the speeds: they are those of what is chosen here. Its last line: what one order of summation costs at batch 1.
  part "ways of products by timing" build/bin/ingot tune ${model:+-m "$model"} --device metal
  part "batch table" build/bin/ingot bench ${model:+-m "$model"} --device metal --batch 1,2,4,8,16
  part "batch table, JSON" build/bin/ingot bench ${model:+-m "$model"} --device metal --batch 1,2,4,8,16 --json
  part "GPU time by kernel" env VLLM_METAL_PROFILE=1 build/bin/ingot bench ${model:+-m "$model"} --device metal --batch 1 --gen-len 8
} 2>&1 | tee "$report"
say "report: $report"
grep -q '^FAILED' "$report" && exit 1
exit 0
