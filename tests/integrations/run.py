#!/usr/bin/env python3
"""Runs the integration drivers against one `mooncake` package and says what passed.

    run.py --python VENV/bin/python --package DIR [--kind light|full] [--jobs N] [--peer] [--logs DIR] [driver ...]

DIR holds an unpacked package (`pip install --no-deps --target DIR WHEEL`); its `bin` comes first on PATH. A driver
passes when it ends with 0 and reports no failed check; for our own package no check may be skipped either, and the
checks that only our package can pass are on (SUPERSET=1). `--peer` takes both back, for the peer's wheel.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Driver:
    """One driver script, the seconds it may take and the checks it has at least."""

    name: str
    limit: int
    checks: int
    needs: str = "torch"


#: The longest first, so that two at a time end together.
DRIVERS = {d.name: d for d in (
    Driver("vllm_store", 900, 26, "vllm"), Driver("vllm_pd", 900, 8, "vllm"), Driver("lmcache_store", 900, 29),
    Driver("sglang_hicache", 300, 80), Driver("sglang_pd", 240, 34), Driver("others", 240, 25),
    Driver("call_forms", 180, 43),
)}
LIGHT = [d.name for d in DRIVERS.values() if d.needs != "vllm"]
KINDS = {"light": LIGHT, "full": list(DRIVERS)}


@dataclasses.dataclass
class Outcome:
    driver: Driver
    seconds: float
    code: int
    text: str

    def lines(self, start):
        return [line for line in self.text.splitlines() if line.startswith(start)]

    def faults(self, strict):
        """Why the driver did not pass; empty when it did."""
        found = self.lines("FAIL")
        if strict:
            found += self.lines("skip")
        summary = re.search(r"^(\d+) passed, (\d+) failed", self.text, re.M)
        if summary is None or self.code != 0:
            found.append(f"ended with {self.code}" + ("" if summary else ", without a summary"))
        elif int(summary[1]) < self.driver.checks:
            found.append(f"only {summary[1]} checks ran, of at least {self.driver.checks}")
        return found


def environment(options):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("MC_", "MOONCAKE_", "PYTHON", "SGLANG_", "LMCACHE_", "VLLM_"))}
    env["PYTHONPATH"] = os.pathsep.join([*options.overlay, str(options.package), str(HERE)])
    env["PATH"] = f"{options.package / 'bin'}{os.pathsep}{options.python.parent}{os.pathsep}{env['PATH']}"
    env["PYTHONUNBUFFERED"] = env["PYTHONFAULTHANDLER"] = "1"
    env["TOKENIZERS_PARALLELISM"] = "false"
    env["OMP_NUM_THREADS"] = env.get("OMP_NUM_THREADS", "2")
    if not options.peer:
        env["SUPERSET"] = "1"
    return env


def run(driver, options):
    """Runs one driver in a process group of its own, which is ended with it."""
    log = options.logs / f"{driver.name}.log"
    begun = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen([str(options.python), str(HERE / f"{driver.name}.py")], stdout=out,
                                   stderr=subprocess.STDOUT, env=environment(options), cwd=options.logs,
                                   start_new_session=True)
        try:
            code = process.wait(driver.limit)
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return Outcome(driver, time.monotonic() - begun, code, log.read_text(errors="replace"))


def report(outcome, options):
    faults = outcome.faults(strict=not options.peer)
    passed, skipped = len(outcome.lines("ok ")), len(outcome.lines("skip"))
    print(f"{'FAIL' if faults else 'ok':<5} {outcome.driver.name:<15} {passed:3} checks, {skipped} skipped, "
          f"{outcome.seconds:5.1f} s", flush=True)
    for fault in faults:
        print(f"      {fault[:500]}")
    if faults and not options.brief:
        tail = [line for line in outcome.text.splitlines() if not line.startswith(("ok ", "I1", "W1"))][-40:]
        print("      | " + "\n      | ".join(line[:300] for line in tail), flush=True)
    return bool(faults)


def parsed(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("target/integrations/logs"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--overlay", action="append", default=[], help="a folder before the package on the path")
    parser.add_argument("--kind", choices=KINDS, default="light", help="the drivers to run when none is named")
    parser.add_argument("driver", nargs="*")
    options = parser.parse_args(arguments)
    options.driver = options.driver or KINDS[options.kind]
    options.python = options.python.absolute()  # not resolved: the venv's own name matters
    options.package = options.package.resolve()
    options.logs = options.logs.absolute()
    options.logs.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = parsed(sys.argv[1:])
    begun = time.monotonic()
    chosen = [d for d in DRIVERS.values() if d.name in options.driver]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        bad = sum([report(f.result(), options) for f in
                   concurrent.futures.as_completed([pool.submit(run, d, options) for d in chosen])])
    print(f"{len(chosen) - bad} drivers passed, {bad} failed, {time.monotonic() - begun:.0f} s; logs in {options.logs}")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
