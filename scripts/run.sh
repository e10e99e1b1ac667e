#!/usr/bin/env bash
# `make run`: one prompt answered by the default model, and what to try next.
source "$(dirname "$0")/lib.sh"
cd "$root"
INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path)
export INGOT_DEFAULT_MODEL
prompt=${PROMPT:-What is the capital of France, and what is it known for?}

say "$prompt"
printf '\n'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The timings, on stderr, are held back so that they do not land inside the answer.
if ! build/bin/ingot run --chat -p "$prompt" -n "${TOKENS:-64}" 2>"$work/notes" | tee "$work/answer"; then
  cat "$work/notes" >&2
  die "ingot could not answer (its own words are above)" "To see what this machine offers: build/bin/ingot doctor"
fi
cat "$work/notes" >&2
# An empty answer is a failure too, however well the program ended.
grep -q '[[:alnum:]]' "$work/answer" || die "the model's answer is empty" "Please report it, with the output of: build/bin/ingot doctor"
cat <<'NEXT'

It works. What to try next:
  make run PROMPT="Write a haiku about the sea." TOKENS=100
  build/bin/ingot run --chat -p "Why is the sky blue?" -n 200 --temperature 0.7
  build/bin/ingot run -m model.gguf -p "Once upon a time"    your own GGUF file or Hugging Face folder
  build/bin/ingot bench --batch 1,4,16                       speed, with the memory bandwidth behind it
  build/bin/ingot doctor                                     devices, instruction sets, settings in force
  make test                                                  the whole suite
NEXT
