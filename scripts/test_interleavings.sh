#!/usr/bin/env bash
# Interleavings of threads over the catalog, tried by a scheduler; then the same with one fault planted at a time, which
# must be found. YB_SCHEDULES says how many schedules are tried of each race.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
export CARGO_TARGET_DIR="$repo/target/shuttle"
# The explorer takes many steps.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
test=(cargo test --locked -q -p yb-catalog --features shuttle --test interleavings)

"${test[@]}"

# A copy of the sources to plant faults in; what the registry gave is compiled once for all.
copy="$repo/target/planted"
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z -- Cargo.toml Cargo.lock 'crates/*' | xargs -0 cp --parents -t "$copy"
cd "$copy"

# planted NAME FILE FROM TO TEST: the one line that matches FROM becomes TO, and TEST must fail.
planted() {
    local name=$1 file=$2 from=$3 to=$4 caught_by=$5
    local count
    count=$(grep -cE "$from" "$file" || true)
    if [ "$count" != 1 ]; then
        echo "the fault '$name' fits $count lines of $file, not one: adapt it to the code" >&2
        exit 1
    fi
    cp "$file" "$file.good"
    sed -i -E "s/$from/$to/" "$file"
    if "${test[@]}" "$caught_by" > planted.log 2>&1; then
        echo "the planted fault '$name' was not found" >&2
        exit 1
    fi
    if ! grep -q "test $caught_by ... FAILED\|$caught_by --- FAILED" planted.log; then
        echo "the planted fault '$name' does not compile:" >&2
        tail -20 planted.log >&2
        exit 1
    fi
    echo "planted and found: $name"
    mv "$file.good" "$file"
}

planted "the lease is stored, not raised" crates/catalog/src/entry.rs \
    'self\.lease\.fetch_max\(until\.0, Ordering::Relaxed\);' 'self.lease.store(until.0, Ordering::Relaxed);' \
    a_lease_never_moves_back
planted "a segment that goes still takes objects" crates/catalog/src/segment.rs \
    'if self\.takes_objects\(\) \{ (space\.allocator\.allocate\(.*\)) \} else \{ None \};' '\1;' \
    an_unmount_leaves_nothing_behind
