#!/usr/bin/env bash
# Builds libtransfer_engine.so with optimisation, with libmooncake_store.so as its second name (one library has both C
# APIs); with PREFIX set, copies it and its headers there.
set -euo pipefail
cd "$(dirname "$0")/.."
"${CARGO:-cargo}" build --release --locked -p yb-capi
library="${CARGO_TARGET_DIR:-target}/release/libtransfer_engine.so"
if [ -n "${PREFIX:-}" ]; then
    install -D -m 755 "$library" "$PREFIX/lib/libtransfer_engine.so"
    install -D -m 644 -t "$PREFIX/include" crates/capi/include/transfer_engine_c.h crates/capi/include/store_c.h
    library="$PREFIX/lib/libtransfer_engine.so"
fi
ln -sfn libtransfer_engine.so "$(dirname "$library")/libmooncake_store.so"
echo "$library"
