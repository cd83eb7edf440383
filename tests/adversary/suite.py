#!/usr/bin/env python3
"""Attacks that once succeeded: what a peer sends and what a store does must hurt nobody else.

Each test reproduces one attack and asserts the rule that docs/reference/security.md promises. The rooms:

    data.py      data and the process: places of tasks, late writes, reservations
    flushes.py   durability: failed flushes, FUA, the last flush, new files
    bounds.py    one unit, one session, one core: what each may take from the others
    turns.py     changes of the configuration: what one takes is gone with its answer, none undoes or holds up another
    strangers.py what peers that prove nothing may hold, and whom they may displace
    lanes.py     stores that hang
    rights.py    who may do what: before login, after login, through a read-only view, as operator
    answers.py   what SCSI commands and iSCSI requests are answered
    state.py     the state directory, the start
    document.py  the configuration file: what lies at its path, who looks at it
    promises.py  what docs/reference/security.md names is there

Assertions are on answers and counts, never on milliseconds: a deadline is generous and only tells "answered" from "hangs".

    suite.py [--list] [PATTERN...]
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import harness

# Each import adds its tests to the harness, in the order of the file.
import data  # noqa: F401
import flushes  # noqa: F401
import bounds  # noqa: F401
import turns  # noqa: F401
import lanes  # noqa: F401
import strangers  # noqa: F401
import rights  # noqa: F401
import answers  # noqa: F401
import state  # noqa: F401
import document  # noqa: F401
import promises  # noqa: F401

if __name__ == "__main__":
    harness.main()
