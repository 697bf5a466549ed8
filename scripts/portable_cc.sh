#!/bin/bash
# Links for glibc 2.28, whatever this machine has: `rustc -C linker=scripts/portable_cc.sh`. Zig brings the C library's symbols
# of that version; scripts/build_wheel.sh puts it below target/tools.
#
# libgcc_s stays the system's: threads that CPython ends run its unwinder over our frames, and two unwinders in one process
# do not understand each other's records.
set -euo pipefail
tools=$(cd "$(dirname "$0")/.." && pwd)/target/tools
arguments=()
for argument in "$@"; do
  case $argument in
    -lgcc_s) arguments+=("$(gcc -print-file-name=libgcc_s.so.1)" -Wl,--allow-shlib-undefined) ;;
    *) arguments+=("$argument") ;;
  esac
done
export CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python3 CARGO_ZIGBUILD_CACHE_DIR=$tools/zig-cache
export ZIG_GLOBAL_CACHE_DIR=$tools/zig-cache
exec "$tools/bin/maturin" zig cc -- -g -target "$(uname -m)-linux-gnu.2.28" "${arguments[@]}"
