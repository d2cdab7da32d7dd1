#!/usr/bin/env bash
# Puts curl under test. Copy this file, change CURL, and run it by
# `holdoff-conformance client --adapter "bash adapter.sh"`. Needs bash 5 and curl; README.md has the steps.
# Any other program that makes one call per start (wget, xh, your own command) fits in the place of `one_call`.

# REPLACE ME: the command line, retries included.
CURL=(curl --retry 3)
BODIES=$(mktemp -d) && trap 'rm -rf "$BODIES"' EXIT
read -r _ VERSION _ < <(curl --version)

# Member $1 of the JSON line $2, if it is a string or a number. The runner's commands are flat enough for a pattern.
text() {
    local pattern='"'$1'":"(([^"\\]|\\.)*)"'
    [[ $2 =~ $pattern ]] || return 1
    found=${BASH_REMATCH[1]} && found=${found//\\\"/\"} && found=${found//\\\\/\\}
}
number() { [[ $2 =~ \"$1\":([0-9]+) ]] && found=${BASH_REMATCH[1]}; }
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# One write of less than a page: lines of calls that end together do not mix.
reply() { printf '{"id":"%s",%s}\n' "$1" "$2"; }

one_call() { # the id, the whole command
    local id=$1 line=$2 begun said status field attempts=0 rest
    begun=$(now_ms)
    # The heads of all answers go to stdout: one status line for each attempt.
    local run=("${CURL[@]}" --silent --show-error --max-redirs 0 --dump-header - --write-out '%{http_code}'
        --output "$BODIES/$id") # a file: before a retry curl cuts what it wrote to nothing
    text method "$line" && run+=(--request "$found")
    text body "$line" && run+=(--data-raw "$found" --header 'Content-Type:')
    text idempotency_key "$line" && run+=(--header "Idempotency-Key: \"$found\"")
    number deadline_ms "$line" && run+=(--retry-max-time $(((found + 999) / 1000)))
    [[ $line =~ \"headers\":\{([^}]*)\} ]] && rest=${BASH_REMATCH[1]}
    while [[ $rest =~ ^,?\"([^\"]*)\":\"([^\"]*)\"(.*) ]]; do
        run+=(--header "${BASH_REMATCH[1]}: ${BASH_REMATCH[2]}") rest=${BASH_REMATCH[3]}
    done
    text url "$line"
    said=$("${run[@]}" "$found")
    local code=$? took=$(($(now_ms) - begun))
    status=${said##*$'\n'}
    if [[ $status =~ ^[1-9][0-9][0-9]$ ]]; then
        while read -r field; do [[ $field =~ ^HTTP/[0-9.]+\ [2-5] ]] && attempts=$((attempts + 1)); done <<<"$said"
        reply "$id" '"result":{"kind":"response","status":'"$status"',"attempts":'"$attempts"',"elapsed_ms":'"$took"'}'
    else
        reply "$id" '"result":{"kind":"error","why":"transport","message":"curl exit code '"$code"'","elapsed_ms":'"$took"'}'
    fi
}

# The protocol: one JSON object a line on stdin, one for each on stdout. Nothing below needs a change.
while IFS= read -r line; do
    text id "$line" && id=$found
    text cmd "$line"
    case $found in
        hello)
            reply "$id" '"protocol":1,"role":"client","contract_versions":[1],"capabilities":["call_time"],"implementation":{"name":"curl","version":"'"$VERSION"'","configuration":"'"${CURL[*]}"'; a call'"'"'s time by --retry-max-time"}' ;;
        configure) reply "$id" '"ok":true' ;;
        call) one_call "$id" "$line" & ;;
        stop) reply "$id" '"ok":true'; exit 0 ;;
        *) reply "$id" '"error":"unknown_command"' ;;
    esac
done
