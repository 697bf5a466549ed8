#!/bin/sh
# Runs Python tests against the package in dist/: its own (tests/python) and the proofs with the peer (tests/peer).
#
#   scripts/test_python.sh [pytest arguments]      default: both folders
#
# YB_PEER_VENVS=DIR    reuse DIR/v0.3.13.post1, DIR/v0.3.12, DIR/v0.3.14 instead of installing the peer's wheels
# YB_OURS_PYTHON=PATH  a Python that already has our package (else the wheel in dist/ is installed below target/peer)
# YB_BINARY=PATH       the yuebing program under test (else the one in our package)
# CI=true              a test that cannot run is a failure, not a skip
set -eu
cd "$(dirname "$0")/.."
work=target/peer
mkdir -p "$work"

missing() {
    echo "Python tests and proofs with the peer not run: $1"
    [ "${CI:-}" = true ] && exit 1
    exit 0
}

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || missing "no CPython >= 3.11 (set PYTHON)"
if [ ! -x "$work/runner/bin/pytest" ]; then
    "$python" -m venv --clear "$work/runner" >/dev/null 2>&1 || missing "no venv module (apt-get install python3-venv)"
    "$work/runner/bin/python" -m pip install -q --disable-pip-version-check "pytest==8.4.2" \
        || missing "the package registry did not give pytest"
fi

if [ -z "${YB_OURS_PYTHON:-}" ]; then
    ls dist/yuebing-*.whl >/dev/null 2>&1 || { echo "no wheel in dist/: make wheel first"; exit 1; }
    [ -x "$work/ours/bin/python" ] || "$python" -m venv --clear "$work/ours"
    "$work/ours/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps --force-reinstall \
        --find-links dist yuebing
    YB_OURS_PYTHON=$PWD/$work/ours/bin/python
    export YB_OURS_PYTHON
fi

[ $# -gt 0 ] || set -- tests/python tests/peer
exec "$work/runner/bin/python" -m pytest -p no:cacheprovider -q -rs "$@"
