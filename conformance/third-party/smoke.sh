#!/usr/bin/env bash
# The adapter kits through a few cases: does what a team copies still work? For CI; needs only what is there, and says what
# it leaves out. Usage: smoke.sh [path of holdoff-conformance]
set -euo pipefail
cd "$(dirname "$0")/../.."
runner=${1:-target/debug/holdoff-conformance}
ran=0
skip() { printf 'skipped: %s: %s\n' "$1" "$2"; }
client() { # name, program it needs, adapter
    if command -v "$2" >/dev/null; then
        "$runner" client --adapter "$3" --filter window-whole-seconds --filter end-advice-on-success --filter "$4"
        ran=$((ran + 1))
    else
        skip "$1" "$2 is not installed"
    fi
}
if command -v python3 >/dev/null && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    skip "the Python kits" "$(python3 --version) is older than 3.10"
else
    client "the Python kit" python3 "python3 conformance/kits/python/adapter.py" stop-retry-no
    if command -v python3 >/dev/null; then
        "$runner" server --adapter "python3 conformance/kits/python/server.py" --filter PLAIN-rejects-are-whole
        ran=$((ran + 1))
    fi
fi
if command -v node >/dev/null; then
    "$runner" server --adapter "node conformance/kits/node/server.mjs" --filter PLAIN-rejects-are-whole
    ran=$((ran + 1))
fi
client "the Node kit" node "node conformance/kits/node/adapter.mjs" stop-retry-no
client "the curl kit" curl "bash conformance/kits/curl/adapter.sh" end-deferred-work
printf 'kits smoke: %d passed\n' "$ran"
