#!/bin/sh
# A router before replicas of `ingot serve`, with the settings that docs/replicas.md explains.
#   route.sh prefix  --port 8000 --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000     a conversation goes where its beginning went
#   route.sh session --port 8000 --worker-urls ...                                            requests with the same X-Session-ID go together
# Options are the router's own, and win over those of this file. PYTHON has the packages of requirements.txt.
set -eu
mode=${1:-}
[ $# -gt 0 ] && shift
case $mode in
  prefix) set -- -m sglang_router.launch_router --policy cache_aware --log-level warn "$@" ;;
  session) set -- -m vllm_router.launch_router --policy consistent_hash --log-level warning "$@" ;;
  *)
    echo "error: the first word is prefix or session, not '$mode'" >&2
    exit 2
    ;;
esac
module=$2
shift 2
# /ready says 503 while a replica drains, which /health does not. A replica that failed once is left alone for 5 seconds.
exec "${PYTHON:-python3}" -m "$module" --host 127.0.0.1 --prometheus-host 127.0.0.1 --health-check-endpoint /ready --health-check-interval-secs 5 \
  --health-failure-threshold 1 --worker-startup-check-interval 2 --cb-failure-threshold 1 --cb-success-threshold 1 --cb-timeout-duration-secs 5 "$@"
