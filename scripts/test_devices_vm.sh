#!/bin/bash
# The tests of devices that this machine lacks, in a small virtual machine: a device-DAX node, an NVMe disk.
# RDMA_VM names the folder of the `rdma-vm` tool; ../shared/rdma-vm is tried otherwise. Without it: one line, and success.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$(git rev-parse --path-format=absolute --git-common-dir)/..
vm=""
for place in "${RDMA_VM:-}" ../shared/rdma-vm "$root/../shared/rdma-vm"; do
  [[ -n $place && -x $place/rdma-vm ]] && vm=$(realpath "$place") && break
done
if [[ -z $vm ]]; then
  echo "skipped: no rdma-vm here (RDMA_VM=path names it)"
  exit 0
fi

# The newest test programs of the build, by name.
programs=$(cargo test --locked -p yb-transfer --test cxl --test file --no-run --message-format=json 2>/dev/null |
  python3 -c '
import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["name"] in ("cxl", "file"):
        print(made["target"]["name"], made["executable"])')
cxl=$(awk '$1 == "cxl" { print $2 }' <<<"$programs")
file=$(awk '$1 == "file" { print $2 }' <<<"$programs")

# The last argument of the recipe's command is the device.
"$vm/rdma-vm" run --rails 1 --pmem 256 --nvme 64 --timeout 400 -- "$vm/recipes/devdax.sh" pmem sh -c '
  set -e
  YB_TEST_DAX=$2 "$0" --test-threads=1
  YB_TEST_DISK=/dev/nvme0n1 "$1" --test-threads=1 a_block_device' "$cxl" "$file"
