#!/usr/bin/env bash
# The default model, in the user's cache; python/ingot/default_model.py does the work.
#   scripts/fetch_model.sh           fetches it when it is not there
#   scripts/fetch_model.sh --path    prints where it is, or would be
#   scripts/fetch_model.sh --check   ... and checks every byte of it
source "$(dirname "$0")/lib.sh"

target=${INGOT_DEFAULT_MODEL:-$(cache_dir)/models/SmolLM2-135M-Instruct.Q4_1.gguf}
case "${1:-}" in
  --path)
    printf '%s\n' "$target"
    exit
    ;;
  --check) exec python3 "$root/python/ingot/default_model.py" --check ;;
esac
if [ -f "$target" ] && { [ -n "${INGOT_DEFAULT_MODEL:-}" ] || ! have python3; }; then exit; fi
python=$(find_pip_python)
[ -n "$python" ] || [ -f "$target" ] || die "python3 with pip is missing; it fetches the default model" "Run: make setup"
"${python:-python3}" "$root/python/ingot/default_model.py" >/dev/null
