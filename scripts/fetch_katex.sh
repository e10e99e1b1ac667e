#!/usr/bin/env bash
# KaTeX (MIT; its fonts: SIL OFL), which sets the formulas of the chat page, from a wheel on PyPI that carries it: fetched once,
# checked by hash, kept in the user's cache as katex.js and katex.css. Of each font only the form that browsers use is kept.
#   scripts/fetch_katex.sh           fetches it when it is not there
#   scripts/fetch_katex.sh --path    prints where it is, or would be
source "$(dirname "$0")/lib.sh"

target=${INGOT_KATEX:-$(cache_dir)/katex-0.15.1}
if [ "${1:-}" = --path ]; then
  printf '%s\n' "$target"
  exit
fi
if [ -f "$target/katex.js" ] && [ -f "$target/katex.css" ]; then exit; fi
[ -z "${INGOT_KATEX:-}" ] || die "INGOT_KATEX names a folder without katex.js and katex.css: $target" "Unset it to use the pinned one."

python=$(find_pip_python)
[ -n "$python" ] || die "python3 with pip is missing; it fetches KaTeX" "Run: make setup"
make_work_dir .
say "Fetching KaTeX (a wheel of 1.3 MB, once)"
fetch_wheel katex.txt "$work" --quiet || die "could not fetch KaTeX from PyPI (pip's words are above; is this machine offline?)"
"$python" - "$work" <<'PY' || die "could not unpack KaTeX into $dir (is the disk full?)"
import pathlib, re, sys, zipfile
work = pathlib.Path(sys.argv[1])
folder = "nonebot_plugin_htmlrender/templates/markdown/katex/"
notice = "/* KaTeX 0.15.1, https://katex.org, MIT license, Copyright (c) 2013-2020 Khan Academy and other contributors. Fonts: SIL OFL 1.1. */\n"
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    script = wheel.read(folder + "katex.min.js").decode()
    style = wheel.read(folder + "katex.min.b64_fonts.css").decode()
style, fonts = re.subn(r',url\("data:font/(?:woff|ttf);base64,[^"]*"\) format\("(?:woff|truetype)"\)', "", style)
assert fonts == 40, fonts  # two other forms of each font
(work / "katex").mkdir()
for name, text in {"katex.js": script, "katex.css": style}.items():
    (work / "katex" / name).write_text(notice + text, encoding="utf-8", newline="\n")
PY
rm -rf "$target"
mv "$work/katex" "$target"
