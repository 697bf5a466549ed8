#!/usr/bin/env python3
"""Do the drivers bite? Each of the faults of mutant/sitecustomize.py is laid over the package, and the driver named for
it has to fail. Takes some minutes: run it after a change of a driver.

    mutants.py [run.py's --python and --package] [fault ...]
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
#: Which driver notices which fault.
PAIRS = {
    "reads_give_zero": "sglang_hicache", "writes_give_counts": "sglang_hicache", "all_keys_exist": "sglang_hicache",
    "first_buffer_only": "sglang_hicache", "no_key_exists": "lmcache_store", "buffers_are_none": "lmcache_store",
    "host_without_port": "lmcache_store", "upserts_give_counts": "others", "one_miss_fails_all": "others",
    "no_force": "others", "reads_move_nothing": "others", "unregister_fails": "call_forms", "no_keywords": "call_forms",
    "no_docstring": "call_forms", "notices_are_lost": "call_forms", "writes_move_nothing": "sglang_pd",
}


def main():
    arguments = sys.argv[1:]
    chosen = [a for a in arguments if a in PAIRS] or list(PAIRS)
    rest = [a for a in arguments if a not in PAIRS]
    survived = []
    for fault in chosen:
        command = [sys.executable, str(HERE / "run.py"), *rest, "--brief", "--overlay", str(HERE / "mutant"),
                   "--logs", f"target/integrations/mutants/{fault}", PAIRS[fault]]
        answer = subprocess.run(command, env={**os.environ, "MUTANT": fault}, capture_output=True, text=True)
        found = re.findall(r"^      (FAIL .*)", answer.stdout, re.M)
        caught = answer.returncode != 0 and bool(found)
        print(f"{'ok' if caught else 'FAIL':<5} {fault} in {PAIRS[fault]}: "
              f"{found[0][6:100] if found else 'not noticed by a check' }", flush=True)
        if not caught:
            survived.append(fault)
            print(answer.stdout[-1500:], answer.stderr[-500:])
    print(f"{len(chosen) - len(survived)} faults noticed, {len(survived)} not")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
