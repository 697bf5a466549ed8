#!/usr/bin/env bash
# Builds libtransfer_engine.so with optimisation; with PREFIX set, copies it and its header there.
set -euo pipefail
cd "$(dirname "$0")/.."
"${CARGO:-cargo}" build --release --locked -p yb-capi
library="${CARGO_TARGET_DIR:-target}/release/libtransfer_engine.so"
if [ -n "${PREFIX:-}" ]; then
    install -D -m 755 "$library" "$PREFIX/lib/libtransfer_engine.so"
    install -D -m 644 crates/capi/include/transfer_engine_c.h "$PREFIX/include/transfer_engine_c.h"
    library="$PREFIX/lib/libtransfer_engine.so"
fi
echo "$library"
