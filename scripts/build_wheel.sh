#!/bin/sh
# Builds the wheel of the package `mooncake` (distribution `yuebing`), with the program in it.
#
#   scripts/build_wheel.sh [--dev] [FOLDER]      FOLDER: where the wheel goes, default dist; --dev: not optimised
set -eu
cd "$(dirname "$0")/.."
profile=release
kind=release
if [ "${1:-}" = --dev ]; then
    profile=dev
    kind=debug
    shift
fi
out=${1:-dist}
python=${PYTHON:-python3}
tools=target/tools
target=${CARGO_TARGET_DIR:-target}

if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    "$python" -m venv --clear "$tools"
    "$tools/bin/python" -m pip install -q --disable-pip-version-check "maturin==1.16.0"
fi

${CARGO:-cargo} build --locked --profile "$profile" -p yb-cli --bin yuebing
mkdir -p python/mooncake/bin
strip -o python/mooncake/bin/yuebing "$target/$kind/yuebing"
chmod 755 python/mooncake/bin/yuebing
mkdir -p "$out"
rm -f "$out"/yuebing-*.whl
"$tools/bin/maturin" build --quiet --locked --profile "$profile" --interpreter "$python" --out "$out"
ls "$out"/yuebing-*.whl
