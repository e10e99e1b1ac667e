#!/usr/bin/env bash
# What only an NVIDIA GPU can show, on a machine without a compiler: tests and measurements of the CUDA device.
#   scripts/cuda_check.sh pack FOLDER [PART]...       here: builds, compiles the kernels that the parts ask for, and leaves all of it in FOLDER
#   scripts/cuda_check.sh run FOLDER OUT [PART]...    there, in the same tree: runs the parts; OUT gets summary.txt, log.txt and tables.txt
# Parts, in order; each has a time limit of its own, and none begins after CUDA_CHECK_S (570) seconds:
#   tests    conformance, invariance, speculation, sanitizer
#   decode   decode-bf16, decode-q8_0, decode-q4_k    Devstral at batch 1, 8, 16 and 64, by defaults and tuned
#   models   experts, small                           Qwen3-30B-A3B and Qwen2-0.5B, by defaults and tuned; prompts of the first
#   prefill                                           Devstral in bf16: 8 x 2,048, 1 x 16,384 and 128 tokens
source "$(dirname "$0")/lib.sh"
cd "$root"

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
action=$1 folder=$2
shift 2
case "$folder" in /*) ;; *) folder=$root/$folder ;; esac

# The parts that the words name, each with the seconds it may take.
parts_of() {
  local word
  [ $# -gt 0 ] || set -- tests decode models prefill
  for word in "$@"; do
    case "$word" in
      tests) parts_of conformance invariance speculation sanitizer ;;
      decode) parts_of decode-bf16 decode-q8_0 decode-q4_k ;;
      models) parts_of experts small ;;
      conformance) echo "$word 120" ;;
      invariance | speculation) echo "$word 200" ;;
      sanitizer) echo "$word 150" ;;
      decode-bf16 | prefill) echo "$word 280" ;;
      decode-* | experts | small) echo "$word 200" ;;
      *) die "unknown part '$word'" "Known: tests decode models prefill, and those that $0 names at its head" ;;
    esac
  done
}

# What the parts are, for both actions: $tests and $ingot are the programs, $layers a model's layers, 2 or all.
configs=tests/fixtures/configs
conformance_filter='*Conformance.*/cuda*:*AttentionInvariance.*/cuda*:*Sampling.*/cuda*'
sanitizer_filter='*/Conformance.Experts/cuda*:*/Conformance.GatedLinear/cuda*:*/Conformance.PrefillProducts/cuda*:*AttentionConformance.Group*/cuda*'

# config NAME: its folder, with two layers where that is enough: kernels and choices do not depend on their number.
config() {
  if [ "$layers" = all ]; then
    echo "$configs/$1"
  else
    mkdir -p "$work/$1"
    sed -E "s/(\"num_hidden_layers\": *)[0-9]+/\1$layers/" "$configs/$1/config.json" >"$work/$1/config.json"
    echo "$work/$1"
  fi
}
bench() {
  local name=$1 dtype=$2
  shift 2
  "$ingot" bench -m "$(config "$name")" --load-format dummy --dtype "$dtype" --device cuda --limit-gb-s 4600 "$@"
}
decode() { bench "$1" "$2" --batch 1,8,16,64 --prompt-len 512 --gen-len 32; }
tune() { layers=2 && "$ingot" tune -m "$(config "$1")" --load-format dummy --dtype "$2" --device cuda --max-seqs 64; }
prefill() {
  bench "$1" bf16 --batch 8 --prompt-len 2048 --gen-len 4
  bench "$1" bf16 --batch 1 --prompt-len 16384 --gen-len 2
  bench "$1" bf16 --batch 1 --prompt-len 128 --gen-len 2
}
# The same before and after timing, whose choices begin from nothing.
twice() {
  local INGOT_CACHE=$work/cache
  export INGOT_CACHE
  rm -rf "$INGOT_CACHE"
  echo "$1 $2, by defaults"
  decode "$1" "$2"
  (tune "$1" "$2")
  echo "$1 $2, tuned"
  decode "$1" "$2"
}

# sharded N PROGRAM FILTER: the cases of a test program in N processes.
sharded() {
  local n=$1 program=$2 filter=$3 i pids="" failed=0
  for ((i = 0; i < n; ++i)); do
    GTEST_TOTAL_SHARDS=$n GTEST_SHARD_INDEX=$i "$tests/$program" --gtest_brief=1 --gtest_filter="$filter" >"$work/$program-$i.log" 2>&1 &
    pids="$pids $!"
  done
  for i in $pids; do wait "$i" || failed=1; done
  cat "$work/$program"-*.log
  rm -f "$work/$program"-*.log
  return $failed
}

run_part() {
  case "$1" in
    conformance) sharded "$shards" backend_test "$conformance_filter" ;;
    invariance) sharded "$shards" engine_test 'Cuda/Invariance.*' ;;
    speculation) INGOT_SPECULATION_REQUESTS=$requests "$tests/orchestrator_test" --gtest_brief=1 --gtest_filter='Cuda/LlmSpeculationOn.*' ;;
    sanitizer)
      local tool
      for tool in memcheck racecheck; do
        ${SOFTMETAL_COMPILE_ONLY:+:} compute-sanitizer --tool $tool --error-exitcode 9 "$tests/backend_test" --gtest_brief=1 \
          --gtest_filter="$sanitizer_filter" || return
      done
      [ -z "${SOFTMETAL_COMPILE_ONLY:-}" ] || "$tests/backend_test" --gtest_filter="$sanitizer_filter"
      ;;
    decode-*) twice Devstral-Small-2507 "${1#decode-}" ;;
    experts) twice Qwen3-30B-A3B bf16 && prefill Qwen3-30B-A3B ;;
    small) twice Qwen2-0.5B bf16 ;;
    prefill) prefill Devstral-Small-2507 ;;
  esac
}
program_of() {
  case "$1" in
    conformance | sanitizer) echo tests/backend_test ;;
    invariance) echo tests/engine_test ;;
    speculation) echo tests/orchestrator_test ;;
    *) echo bin/ingot ;;
  esac
}
# In a process group of its own, which ends with its time.
limited() { timeout -k 10 "$1" "$root/scripts/cuda_check.sh" part "$folder" "$2" </dev/null; }

if [ "$action" = part ]; then  # of `limited`, which has what else it needs in its environment
  run_part "$1"
  exit
fi

begin=$(date +%s)
elapsed() { echo $(($(date +%s) - begin)); }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work ingot tests layers shards requests

case "$action" in
  pack)
    parts=$(parts_of "$@") || exit
    scripts/build.sh release ingot backend_test engine_test orchestrator_test
    say "built after $(elapsed) s"
    rm -rf "$folder" && mkdir -p "$folder/bin" "$folder/lib" "$work/kernels"
    echo "$root" >"$folder/tree"
    for program in $(while read -r part _; do program_of "$part"; done <<<"$parts" | sort -u); do
      strip -o "$folder/bin/${program##*/}" "build/$program"
    done
    # All that is not of the system's own C library.
    ldd "$folder"/bin/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
      while read -r library; do cp -L "$library" "$folder/lib/"; done
    tests=$root/build/tests ingot=$root/build/bin/ingot layers=2 shards=$(cores) requests=2
    SOFTMETAL_CACHE=${SOFTMETAL_CACHE:-$(cache_dir)/softmetal}
    export SOFTMETAL_CACHE SOFTMETAL_COMPILE_ONLY=1 SOFTMETAL_PREBUILT=$work/kernels
    while read -r part _; do
      before=$(elapsed)
      # Nothing runs, so that tests find nothing right: what counts is what they ask for.
      limited 3600 "$part" >"$work/$part.log" 2>&1 || true
      say "$part: $(find "$work/kernels" -type f | wc -l) kernels together, $(($(elapsed) - before)) s"
    done <<<"$parts"
    mv "$work/kernels" "$folder/kernels"
    tar -C "$folder" -cf - bin lib kernels | xz -T0 -2 >"$folder/all.tar.xz"
    rm -rf "${folder:?}/bin" "${folder:?}/lib" "${folder:?}/kernels"
    say "$(du -m "$folder" | cut -f1) MB in $folder after $(elapsed) s"
    ;;
  run)
    [ $# -ge 1 ] || usage
    out=$1
    shift
    parts=$(parts_of "$@") || exit
    mkdir -p "$out"
    if have xz; then tar -C "$work" -xJf "$folder/all.tar.xz"; else python3 -m tarfile -e "$folder/all.tar.xz" "$work"; fi
    chmod +x "$work"/bin/*
    # Tests know their fixtures by the path of the tree that they were built in.
    tree=$(cat "$folder/tree")
    [ -e "$tree" ] || { mkdir -p "$(dirname "$tree")" && ln -s "$root" "$tree"; }
    tests=$work/bin ingot=$work/bin/ingot layers=all shards=$(cores) requests=500
    [ "$shards" -le 12 ] || shards=12
    export SOFTMETAL_PREBUILT=$work/kernels LD_LIBRARY_PATH=$work/lib CUDA_CACHE_MAXSIZE=4294967296
    failed=""
    while read -r part limit; do
      left=$((${CUDA_CHECK_S:-570} - $(elapsed)))
      if [ "$left" -lt 20 ]; then
        echo "$part: not begun, no time is left" | tee -a "$out/summary.txt"
        failed="$failed $part"
        continue
      fi
      [ "$limit" -lt "$left" ] || limit=$left
      before=$(elapsed) status=0
      limited "$limit" "$part" >"$work/log" 2>&1 || status=$?
      [ $status -eq 0 ] || failed="$failed $part"
      echo "$part: status $status after $(($(elapsed) - before)) of $limit s" | tee -a "$out/summary.txt"
      { echo "==> $part"; cat "$work/log"; } >>"$out/log.txt"
      { echo "==> $part"; grep -vE '^(\[ |Note:|$)' "$work/log" | tail -n 200 || true; } >>"$out/tables.txt"
    done <<<"$parts"
    [ -z "$failed" ] || { echo "failed:$failed" | tee -a "$out/summary.txt"; exit 1; }
    ;;
  *) usage ;;
esac
