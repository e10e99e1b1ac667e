#!/usr/bin/env bash
# Compiles the kernels that the shipped configs need on an NVIDIA GPU into the cache, without a GPU: the first start there
# then compiles nothing. With SOFTMETAL_PREBUILT=folder it leaves them in that folder, for a machine without clang. TUNE=1 adds what
# `ingot tune` times there, some ten times as many.
source "$(dirname "$0")/lib.sh"
cd "$root"
ingot=build/bin/ingot
[ -x "$ingot" ] || { warn "$ingot is not built: run make build"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export SOFTMETAL_COMPILE_ONLY=1
# Kernels do not depend on the number of layers, but the last one has no prefill rows.
for config in tests/fixtures/configs/*; do
  name=$(basename "$config")
  mkdir "$folder/$name"
  sed -E 's/("num_hidden_layers": *)[0-9]+/\12/' "$config/config.json" > "$folder/$name/config.json"
  for dtype in bf16 q8_0 q4_k; do
    say "$name $dtype"
    "$ingot" bench -m "$folder/$name" --load-format dummy --dtype "$dtype" --device cuda --batch 1,2,4,8,16,32,64 --prompt-len 512 \
      --gen-len 2 > /dev/null
    if [ -n "${TUNE:-}" ]; then
      "$ingot" tune -m "$folder/$name" --load-format dummy --dtype "$dtype" --device cuda > /dev/null
    fi
  done
done
