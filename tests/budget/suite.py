#!/usr/bin/env python3
"""Counts the instructions of an I/O, and the system calls of a turn, and holds them against the budgets in budgets.toml.

    suite.py [--list] [PATTERN...]

valgrind's callgrind counts what crate `budget` executes for N commands and for 2 N; the difference divided by N is what
one more command costs. Time plays no part in it, so the count is the same on a busy machine as on an idle one.
"""
import os
import pathlib
import re
import subprocess
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import turns
from harness import check, measured
from tarn import ROOT

PROGRAM = ROOT / "target/release/budget"
TABLE = tomllib.loads(pathlib.Path(__file__).with_name("budgets.toml").read_text())
# N: enough for everything that grows to have grown in the first half. Whole batches of every row.
COMMANDS = 512
# The C library chooses its copies by the processor; without these they are the same on every x86-64.
PLAIN_COPIES = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS"}
# One count takes a second or two.
LIMIT_S = 60


def instructions(row, run):
    """how many instructions the script takes in all when it runs `run` of 2 N prepared commands."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", PROGRAM, row, str(2 * COMMANDS), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **PLAIN_COPIES})
    check(done.returncode == 0, f"it ends with {done.returncode}: {done.stderr.strip()[-500:]}")
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def per_command(row):
    return (instructions(row, 2 * COMMANDS) - instructions(row, COMMANDS)) / COMMANDS


def hold(row, budget):
    """Fails above the budget, and tells when the budget is slack."""
    cost = per_command(row)
    percent = 100 * (cost / budget - 1)
    measured(f"{cost:,.0f} instructions, budget {budget:,} ({percent:+.1f} %)")
    if percent < -TABLE["lower_percent"]:
        measured("lower the budget")
    check(percent <= TABLE["tolerance_percent"],
          f"{cost:,.0f} instructions per command, {percent:.1f} % above the budget of {budget:,}: find out what was added, or "
          "raise the budget with a reason")


def every_row_has_a_budget():
    """The rows of the program and those of budgets.toml are the same."""
    listed = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout
    harness.equal(sorted(TABLE["rows"]), sorted(line.split()[0] for line in listed.splitlines()), "rows")


if __name__ == "__main__":
    harness.add("every_row_has_a_budget", every_row_has_a_budget)
    for name, budget in TABLE["rows"].items():
        harness.add(name.replace("-", "_"), lambda name=name, budget=budget: hold(name, budget), limit_s=LIMIT_S)
    for depth in (1, 4):
        for kind in ("read", "write"):
            harness.add(f"turns_of_{depth}_{kind}", lambda depth=depth, kind=kind: turns.hold(depth, kind == "write", TABLE["turn"]),
                        limit_s=LIMIT_S)
    harness.main()
