#!/usr/bin/env bash
# `make run`: one prompt answered by the default model, and what to try next.
source "$(dirname "$0")/lib.sh"
cd "$root"
prompt=${PROMPT:-What is the capital of France, and what is it known for?}

say "$prompt"
printf '\n'
build/bin/ingot run --chat -p "$prompt" -n "${TOKENS:-64}"
cat <<'NEXT'

It works. What to try next:
  make run PROMPT="Write a haiku about the sea." TOKENS=100
  build/bin/ingot run --chat -p "Why is the sky blue?" -n 200 --temperature 0.7
  build/bin/ingot run -m model.gguf -p "Once upon a time"    your own GGUF file or Hugging Face folder
  build/bin/ingot bench --batch 1,4,16                       speed, with the memory bandwidth behind it
  build/bin/ingot doctor                                     devices, instruction sets, settings in force
  make test                                                  the whole suite
NEXT
