#!/usr/bin/env bash
# Measures the installed clients (install.sh) beside ours and writes docs/CLIENTS.md and its numbers.
#
#   conformance/third-party/survey.sh                            # every client that is installed, about two minutes
#   conformance/third-party/survey.sh --nightly                  # the heavier ones as well
#   conformance/third-party/survey.sh --only got --behaviour date    # a part, to the terminal; no file is written
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --locked -p holdoff-conformance -p holdoff-peers
run=(target/debug/holdoff-conformance survey --clients conformance/third-party/clients.yaml)
for arg in "$@"; do
    if [[ $arg == --only || $arg == --behaviour ]]; then exec "${run[@]}" "$@"; fi
done
mkdir -p docs/clients-results
exec "${run[@]}" --report docs/clients-results/survey.json --markdown docs/CLIENTS.md "$@"
