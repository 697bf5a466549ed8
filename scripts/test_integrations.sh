#!/bin/sh
# Runs the real code of SGLang, vLLM, LMCache, TransferQueue, checkpoint-engine and others on our package, on CPU.
#
#   scripts/test_integrations.sh [light|full] [driver ...]     light: without vLLM (0.75 GB to fetch; full: 1 GB)
#
# With no driver named, also the tensor calls under torch (tests/tensors). What cannot run is a failure, never a skip.
#
# YB_INTEG_VENV=DIR      an environment that tests/integrations/make_venv.sh made (else one below target/integrations)
# YB_INTEG_PEER=VERSION  drive Mooncake's wheel of that version from the registry instead of ours
# YB_INTEG_OVERLAY=DIR   put before the package on Python's path (tests/integrations/mutants.py uses it)
# YB_INTEG_JOBS=N        drivers at a time, default 2
set -eu
cd "$(dirname "$0")/.."
kind=light
case "${1:-}" in light | full)
    kind=$1
    shift
    ;;
esac
work=target/integrations
mkdir -p "$work"

missing() {
    echo "integration tests not run: $1"
    exit 1
}

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || missing "no CPython >= 3.11 (set PYTHON)"
venv=${YB_INTEG_VENV:-$work/venv-$kind}
recipe="tests/integrations/make_venv.sh tests/integrations/constraints.txt tests/integrations/slim_torch.py"
if [ -z "${YB_INTEG_VENV:-}" ] && [ "$(cat $recipe)" != "$(cat "$venv/made-by" 2>/dev/null)" ]; then
    command -v gcc >/dev/null && command -v readelf >/dev/null || missing "no gcc, readelf (apt-get install gcc binutils)"
    rm -rf "$venv"
    PYTHON=$python tests/integrations/make_venv.sh "$venv" "$kind" || missing "the package registry did not give them all"
    cat $recipe >"$venv/made-by"
fi

tensors=
if [ -n "${YB_INTEG_PEER:-}" ]; then
    package=$work/peer-$YB_INTEG_PEER
    [ -d "$package/mooncake" ] || "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps \
        --target "$package" "mooncake-transfer-engine-non-cuda==$YB_INTEG_PEER" || missing "no wheel of the peer"
    set -- --peer "$@"
else
    ls dist/yuebing-*.whl >/dev/null 2>&1 || { echo "no wheel in dist/: make wheel first"; exit 1; }
    package=$work/ours
    rm -rf "$package"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps --target "$package" \
        --find-links dist yuebing
    [ $# -gt 0 ] || [ -n "${YB_INTEG_OVERLAY:-}" ] || tensors=yes
fi
[ -z "${YB_INTEG_OVERLAY:-}" ] || set -- --overlay "$YB_INTEG_OVERLAY" "$@"
"$python" tests/integrations/run.py --python "$venv/bin/python" --package "$package" --logs "$work/logs" \
    --kind "$kind" --jobs "${YB_INTEG_JOBS:-2}" "$@"
if [ -n "$tensors" ]; then
    YB_TORCH_PYTHON=$(cd "$venv" && pwd)/bin/python CI=true scripts/test_python.sh tests/tensors
fi
