#!/usr/bin/env bash
# `make agx-report`: what Mesa's compiler for Apple GPUs says of our kernels. Arguments go to softmetal/agx/report.py.
source "$(dirname "$0")/lib.sh"
"$root/scripts/fetch_agx.sh"
exec python3 "$root/softmetal/agx/report.py" --tools "$("$root/scripts/fetch_agx.sh" --path)" "$@"
