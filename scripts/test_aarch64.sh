#!/bin/sh
# Checksum and copy kernels for aarch64, compiled for it and run under qemu. Needs: qemu-user, gcc-aarch64-linux-gnu,
# libc6-dev-arm64-cross, and `rustup target add aarch64-unknown-linux-gnu`.
set -eu
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do
    command -v "$tool" >/dev/null || { echo "aarch64 not tested: $tool is not installed"; exit 0; }
done
[ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] ||
    { echo "aarch64 not tested: the target is not there (rustup target add $target)"; exit 0; }
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# Not the tests of memory at far addresses: the emulator keeps a table of all of the address space that it was asked for.
exec "${CARGO:-cargo}" test --locked -p yb-mem --target "$target" --lib -- crc:: copy:: "$@"
