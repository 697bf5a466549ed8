#!/bin/sh
# The RDMA transport over soft-RoCE rails, in a small machine that has them: verbs, the transport's contract, processes of
# ours with each other and with the peer's wheels, rails that fail.
#
#   scripts/test_rdma.sh [test name]
#
# RDMA_VM=PATH         the folder with the program `rdma-vm`, or the program (else ../shared/rdma-vm, if there)
# YB_PEER_VENVS=DIR    reuse the peer's wheels in DIR (see tests/peer/venvs.py)
# RDMA_VM_TIMEOUT=S    limit for the machine (default 2400 s; some 5 minutes are usual on two idle cores)
set -eu
cd "$(dirname "$0")/.."

vm=${RDMA_VM:-../shared/rdma-vm}
[ -d "$vm" ] && vm=$vm/rdma-vm
if [ ! -x "$vm" ]; then
    echo "RDMA tests not run: no machine with soft-RoCE rails (RDMA_VM=PATH names one)"
    exit 0
fi

# One line a wheel: version, interpreter, folders of libraries.
YB_RDMA_WHEELS=$(PYTHONPATH=tests/peer ${PYTHON:-python3} - <<'PY'
import sys
import venvs
for version in ("0.3.13.post1", "0.3.14", "0.3.12"):
    try:
        wheel = venvs.peer(version)
        print(version, wheel.python, ":".join(str(path) for path in wheel.library_path), sep="|")
    except venvs.PeerMissing as missing:
        print(f"RDMA tests without wheel {version}: {missing}", file=sys.stderr)
PY
)
export YB_RDMA_WHEELS

# The programs are built here and run inside, at the same path.
program() {
    ${CARGO:-cargo} test -q --locked --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}
verbs=$(program -p yb-verbs --test soft_roce)
contract=$(program -p yb-transfer --test contract)
processes=$(program -p yb-transfer --test rdma_vm)

unset RDMA_VM
name=${1:-}
if [ -n "$name" ]; then
    command="$processes --nocapture --test-threads=1 $name"
else
    command="$verbs --nocapture && $contract --nocapture rdma && $processes --nocapture --test-threads=1"
fi
exec "$vm" run --rails 4 --timeout "${RDMA_VM_TIMEOUT:-2400}" -- sh -c "$command"
