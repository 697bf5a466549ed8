#!/usr/bin/env bash
# Instructions of the master per operation against bench/instructions.tsv; --bless records new ceilings.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -x ${YB_BINARY:-target/release/yuebing} ]] || "${CARGO:-cargo}" build --release --locked -p yb-cli
exec "${PYTHON:-python3}" bench/instruction_gate.py "$@"
