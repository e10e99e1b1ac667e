#!/usr/bin/env bash
# Runs a Python test with the environment that setup.sh made: scripts/python_test.sh tests/server/client_test.py [option]...
source "$(dirname "$0")/lib.sh"
python=$(find_test_python)
[ -n "$python" ] || die "the Python packages of the tests are missing" "Run: scripts/setup.sh quick"
if [ -z "${INGOT_DEFAULT_MODEL:-}" ]; then
  INGOT_DEFAULT_MODEL=$("$root/scripts/fetch_model.sh" --path)
  export INGOT_DEFAULT_MODEL
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$@"
