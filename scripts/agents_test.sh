#!/usr/bin/env bash
# The server through the libraries that agents are built with: LangChain's standard tests, instructor, litellm. They bring a hundred packages and an older
# openai than the other tests use, so they have an environment of their own in the cache.
#   scripts/agents_test.sh [an option of pytest]...
source "$(dirname "$0")/lib.sh"
cd "$root"
requirements=$root/tests/agents/requirements.txt

python=$(find_venv_python)
[ -n "$python" ] || die "no Python 3.10 or newer with the venv module" "Install one (Debian: apt-get install python3-venv)."
hash=$(sha256 "$requirements")
dir=$(make_cache_dir agents)/${hash:0:12}
if [ ! -f "$dir/complete" ]; then
  say "Installing the packages of tests/agents into $dir"
  rm -rf "$dir"
  log=$({ "$python" -m venv "$dir" && "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
    --only-binary :all: -r "$requirements"; } 2>&1) || {
    printf '%s\n' "$log" | tail -n 3 >&2
    rm -rf "$dir"
    die "could not install the packages of tests/agents/requirements.txt (the end of pip's output is above; is this machine offline?)"
  }
  touch "$dir/complete"
fi

INGOT_DEFAULT_MODEL=$("$root/scripts/fetch_model.sh" --path)
export INGOT_DEFAULT_MODEL INGOT_BINARY="${INGOT_BINARY:-$root/build/bin/ingot}"
export PYTHONPATH="$root/tests/server:$root/tests/agents" PYTHONDONTWRITEBYTECODE=1
# Nothing is sent anywhere but to the server under test.
export LANGSMITH_TRACING=false LITELLM_LOCAL_MODEL_COST_MAP=True DO_NOT_TRACK=1 NO_PROXY=127.0.0.1
# One event loop for all: LangChain keeps its connections from test to test.
exec "$dir/bin/python" -m pytest -q -p no:cacheprovider -p one_model_each -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=session \
  -o asyncio_default_test_loop_scope=session tests/agents/*_test.py "$@"
