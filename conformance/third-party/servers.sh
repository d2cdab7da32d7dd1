#!/usr/bin/env bash
# Judges servers that others wrote by their URL alone: nginx with limit_req and a 503 of its own, haproxy with a queue.
# `install.sh --servers` unpacks them; they run here as ordinary processes on loopback and end with this script.
#
#   conformance/third-party/servers.sh              # both; reports in target/third-party-servers
set -uo pipefail
cd "$(dirname "$0")/../.."
here=conformance/third-party/servers deb=$PWD/conformance/third-party/.env/deb out=target/third-party-servers
cargo build --quiet --locked -p holdoff-conformance || exit 2
export LD_LIBRARY_PATH=$deb/usr/lib/$(uname -m)-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out/nginx"
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait' EXIT

judge() { # name, url
    for _ in $(seq 50); do
        curl --silent --output /dev/null "$2" && break
        sleep 0.1
    done
    printf '\n== %s\n' "$1"
    target/debug/holdoff-conformance server --url "$2" --report "$out/$1.json" | tee "$out/$1.txt" | grep -v '^not applicable\|^ *needs '
}

nginx=$deb/usr/sbin/nginx
if [[ -x $nginx ]]; then
    "$nginx" -v
    "$nginx" -p "$PWD/$out/nginx" -c "$PWD/$here/nginx.conf" &
    started+=($!)
    judge nginx http://127.0.0.1:18480
else
    echo "left out: nginx: install.sh --servers unpacks it"
fi
haproxy=$deb/usr/sbin/haproxy
if [[ -x $haproxy ]] && command -v python3 >/dev/null; then
    "$haproxy" -v | head -1
    python3 "$here/slow.py" &
    started+=($!)
    "$haproxy" -f "$here/haproxy.cfg" &
    started+=($!)
    judge haproxy http://127.0.0.1:18482
else
    echo "left out: haproxy: install.sh --servers unpacks it; its backend needs python3"
fi
