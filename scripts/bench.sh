#!/usr/bin/env bash
# `make bench`: the speed of the default model, then the race against llama.cpp where a build of it is at hand.
#   scripts/bench.sh          PEER_BIN=folder of its binaries (default: what --peer made), ROUNDS=3, THREADS=all,
#                             ONLY=some models, formats and kinds of work (bench/race_llama_cpp.py --help), ISA=avx2
#   scripts/bench.sh --server the server: the race against llama-server, then what a long prompt does to running streams, and what schemas cost
#   scripts/bench.sh --peer   builds llama.cpp into the cache (ISA=avx2: its kernels without AVX-512 too)
source "$(dirname "$0")/lib.sh"
cd "$root"
use_cmake
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL

if [ "${1:-}" = --peer ]; then
  python=$(find_pip_python)
  "${python:-python3}" bench/race_llama_cpp.py --build-peer "$(make_cache_dir peer)" --isa "${ISA:-}"
  exit
fi

threads=${THREADS:-$(cores)}
if [ "${1:-}" = --server ]; then
  peer_bin=${PEER_BIN:-$(cache_dir)/peer/build/bin}
  [ -x "$peer_bin/llama-server" ] || die "no llama-server in $peer_bin" "Build one (10 to 20 minutes, once): make peer"
  say "Racing against llama-server, ${ROUNDS:-5} rounds"
  if [ -z "${PEER_BIN:-}" ]; then peer_name="of llama-cpp-python 0.3.36"; else peer_name="in PEER_BIN"; fi
  python3 bench/race_llama_server.py --peer-bin "$peer_bin" --peer-name "$peer_name" --threads "$threads" --rounds "${ROUNDS:-5}" \
    --json build/race-server.json
  say "A long prompt among running streams"
  python3 bench/long_prompt_stall.py --threads "$threads" --json build/long-prompt-stall.json
  say "Streams with a schema each, and without"
  python3 bench/structured_streams.py --ingot-args="--threads $threads" --json build/structured-streams.json
  exit
fi

build/bin/ingot bench --batch 1,2,4,8,16 --prompt-len 512 --gen-len 32 --threads "$threads"
peer_bin=${PEER_BIN:-$(cache_dir)/peer/build${ISA:+-$ISA}/bin}
if [ ! -x "$peer_bin/llama-batched-bench" ]; then
  say "No llama.cpp to race against. To build one (10 to 20 minutes, once): make peer${ISA:+ ISA=$ISA}; then make bench again."
  exit
fi
if [ -z "${PEER_BIN:-}" ]; then peer_name="of llama-cpp-python 0.3.36"; else peer_name="in PEER_BIN"; fi
say "Racing against llama.cpp, ${ROUNDS:-3} rounds"
python3 bench/race_llama_cpp.py --peer-bin "$peer_bin" --peer-name "$peer_name" --threads "$threads" --rounds "${ROUNDS:-3}" \
  --only "${ONLY:-}" --isa "${ISA:-}" --json build/race.json
