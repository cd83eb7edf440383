#!/usr/bin/env python3
"""Runs a command with the system calls that a unit of systemd allows, as its SystemCallFilter= lines say: others end it.

    unitcalls.py UNIT COMMAND...

What systemd does for a service is done here by hand, as tests have no service manager: calls that it does not know answer
ENOSYS. Needs systemd-analyze and the headers of the kernel.
"""
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import sys

HEADER = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
AUDIT_ARCH_X86_64 = 0xC000003E
KILL, ALLOW, ENOSYS = 0x80000000, 0x7FFF0000, 0x00050000 | 38
# Of struct seccomp_data.
NUMBER_AT, ARCH_AT = 0, 4


def usable():
    """Whether the calls can be found here."""
    return os.uname().machine == "x86_64" and HEADER.exists()


def of_group(name):
    """The calls of a group of systemd, with those of the groups in it."""
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in done.stdout.splitlines()[1:]]
    return {call for word in words if word and not word.startswith("#") for call in of_word(word)}


def of_word(word):
    return of_group(word) if word.startswith("@") else {word}


def allowed(unit):
    """The calls that a unit allows."""
    # Each service needs these to begin.
    calls = of_group("@default")
    for line in pathlib.Path(unit).read_text().splitlines():
        if line.startswith("SystemCallFilter="):
            words = line.removeprefix("SystemCallFilter=")
            named = {call for word in words.removeprefix("~").split() for call in of_word(word)}
            calls = calls - named if words.startswith("~") else calls | named
    return calls


def statement(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(numbers, calls, known):
    """The filter, for the numbers of calls by name."""
    load, is_equal, answer = 0x20, 0x15, 0x06

    def answered(names, what):
        for number in sorted(numbers[name] for name in names if name in numbers):
            yield statement(is_equal, number, 0, 1)
            yield statement(answer, what)
    return b"".join([statement(load, ARCH_AT), statement(is_equal, AUDIT_ARCH_X86_64, 1, 0), statement(answer, KILL),
                     statement(load, NUMBER_AT), *answered(calls, ALLOW), *answered(known - calls, KILL),
                     statement(answer, ENOSYS)])


def main(unit, *command):
    found = re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text())
    code = program({name: int(number) for name, number in found}, allowed(unit), of_group("@known"))
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    words = (PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(head))
    for option, first, second in words:
        arguments = [ctypes.c_ulong(one) for one in (first, second, 0, 0)]
        if libc.prctl(option, *arguments):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
