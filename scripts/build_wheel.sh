#!/bin/sh
# Builds the wheel of the package `mooncake` (distribution `yuebing`), with the program in it.
#
#   scripts/build_wheel.sh [--dev | --native] [--all] [FOLDER]
#
# FOLDER    where the wheel goes, default dist
# (none)    one wheel for CPython 3.11 and later, for every Linux with glibc 2.28 or later; checked by scripts/check_wheel.py
# --all     also the wheel for CPython 3.10 (needs a python3.10, or PYTHON310) and the metadata-only `mooncake-transfer-engine`
# --native  optimised, for machines like this one only: needs no Zig
# --dev     the same, not optimised
set -eu
cd "$(dirname "$0")/.."
profile=release kind=release portable=true all=false
while :; do
    case "${1:-}" in
        --dev) profile=dev kind=debug portable=false ;;
        --native) portable=false ;;
        --all) all=true ;;
        *) break ;;
    esac
    shift
done
out=${1:-dist}
python=${PYTHON:-python3}
tools=$PWD/target/tools
target=${CARGO_TARGET_DIR:-target}

if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$tools"
    "$tools/bin/python" -m pip install -q --disable-pip-version-check "maturin==1.16.0"
fi
if $portable && ! "$tools/bin/python" -m ziglang version >/dev/null 2>&1; then
    "$tools/bin/python" -m pip install -q --disable-pip-version-check "ziglang==0.15.2"
fi

# Only the last step, linking, knows of the older C library: what is compiled is shared with every other build.
if $portable; then
    set -- -- -C "linker=$PWD/scripts/portable_cc.sh"
    platform="--compatibility manylinux_2_28"
else
    set --
    platform="--compatibility linux"
fi

${CARGO:-cargo} rustc --locked --profile "$profile" -p yb-cli --bin yuebing "$@"
mkdir -p python/mooncake/bin
strip -o python/mooncake/bin/yuebing "$target/$kind/yuebing"
chmod 755 python/mooncake/bin/yuebing
mkdir -p "$out"
rm -f "$out"/yuebing-*.whl

# wheel PYTHON OPTIONS...
wheel() {
    interpreter=$1
    shift
    # shellcheck disable=SC2086
    "$tools/bin/maturin" build --quiet --locked --profile "$profile" --interpreter "$interpreter" --out "$out" $platform "$@"
}

wheel "$python" "$@"
if $all; then
    old=${PYTHON310:-$(command -v python3.10 || true)}
    if [ -z "$old" ]; then
        echo "no python3.10 on this machine (PYTHON310=PATH names one): no wheel for it" >&2
        exit 1
    fi
    wheel "$old" --no-default-features "$@"
    "$python" packaging/mooncake-transfer-engine/build.py "$out/mooncake-transfer-engine"
fi
if $portable; then
    "$python" scripts/check_wheel.py "$out"/yuebing-*.whl
fi
ls "$out"/yuebing-*.whl
