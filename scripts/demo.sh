#!/usr/bin/env bash
# An embedded pool of two nodes stores and serves a trace; every byte that is read is compared. TRACE=file or the first
# argument takes a trace of yours (Mooncake's format), REQUESTS=n another number of requests.
set -euo pipefail
cd "$(dirname "$0")/.."

yuebing=${YUEBING:-target/release/yuebing}
trace=${1:-${TRACE:-}}
requests=${REQUESTS:-4000}
work=$(mktemp -d)
pool=
leave() {
  if [[ -n $pool ]] && kill -0 "$pool" 2>/dev/null; then
    kill -TERM "$pool"
    wait "$pool" || true
  fi
  rm -rf "$work"
}
trap leave EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1. A pool on this machine: one master, two nodes, 2 GiB"
"$yuebing" up --nodes 2 --memory 2GiB >"$work/up" &
pool=$!
# The banner is written once the pool is up.
until grep -q '^Ctrl-C' "$work/up"; do
  kill -0 "$pool" || { wait "$pool"; exit 1; }
  sleep 0.1
done
sed '/^Ctrl-C/d' "$work/up"
eval "$(sed -n 's/^ *\(export MOONCAKE_MASTER=.*\)/\1/p' "$work/up")"

if [[ -z $trace ]]; then
  trace=$work/trace.jsonl
  say "2. A trace: $requests requests with the statistics of the published conversation trace"
  "$yuebing" trace generate --requests "$requests" --seed 20250129 --out "$trace"
else
  say "2. The trace $trace"
fi
"$yuebing" trace stat "$trace"

say "3. The replay: blocks that are there are read and compared, the others are stored"
"$yuebing" replay "$trace" --requests "$requests" --block-bytes 64KiB --clients 2

say "4. The pool now"
"$yuebing" status

say "5. Leaving"
kill -TERM "$pool"
wait "$pool"
pool=
sed -n '/left/p' "$work/up"
