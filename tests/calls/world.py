"""What is done to a daemon while one of its calls fails, and the judge: what was answered holds, before and after a restart.

An operation is done once undisturbed: so the judge knows what must be there after it and what was before. Then it is done with
one call that fails. Answered as done, all must be as after it; answered as failed, all must be as before. In every second run it
is done again then, and must succeed. A session that was open all the time goes on, and a restart serves the same.
"""
import contextlib
import difflib
import os
import pathlib
import re
import signal
import subprocess
import time

import iscsi
import scsi
from callfaults import Faults
from harness import Failure, wait_for
from tarn import BINARY, IQN, Tarn, listens, lun_section, target_section

BLOCK, KEY = 512, 0xABC
OTHER = IQN + ":other"
ANSWER_S = 45
# More than a daemon waits for anything at its start or end.
LIMIT_S = 45
# What a file is called while it is written, and how long that may take.
SAVES = ".tarn-new"
SAVED_S = 10
# It serves all the same, and says so.
NO_ADMINISTRATION = 'code="administration"'
LISTENS = "0A"      # of /proc/net/tcp
NO_RING = "no memory for the ring"
# What a process that was killed leaves: a copy, which goes with the next snapshot; the file of a change that was not made, which is
# known (docs/PLAN.md).
CUT_OFF = ("left behind: a.img.snapshots/.one.new", "left behind: c.img")
IS_DONE = "which is removed, stays so"
NOT_KNOWN_YET = "not known yet"
CONFIG = (lun_section("a", "file:{dir}/a.img?size=1M") + lun_section("b", "file:{dir}/b.img?size=1M")
          + lun_section("spare", "file:{dir}/spare.img?size=1M") + target_section("a") + target_section("b", name=OTHER))
CHANGED = (CONFIG.replace("a.img?size=1M", "a.img?size=2M").replace('id = "spare"', 'id = "c"').replace("spare.img", "c.img")
           + target_section("c", name=IQN + ":new") + '[[nbd]]\nbind = "127.0.0.1:{port2}"\nluns = ["c"]\n')


# Panics that are known and stand in docs/PLAN.md: what the log has of them. What holds after them is judged all the same.
KNOWN = {
    "a new thread has no memory for its signal stack: Rust's library aborts":
        r".*panicked at \S*std/src/sys/pal/unix/stack_overflow.rs.*",
    "the administration can start no thread for a call: tokio panics, the caller gets an answer":
        r".*panicked at crates/admin/src/call.rs:.*\nOS can't spawn worker thread|.*panicked with message \"OS can't spawn worker.*",
}


# What a call that failed or the log says, and what may differ then.
NOT_PUT_BACK = "the configuration file is not what runs"
EXCUSED = [
    # What cannot be read is recorded again.
    (r"/state/history/.*\.toml: ", r"left behind: state/history/\d+\.toml"),
    ("the history has a change that was not made", r"left behind: state/history/\d+\.toml"),
    (NOT_PUT_BACK, r"^file: "),
    # A copy that cannot be removed goes with the next snapshot.
    (r": E\w+ from then on", r"left behind: a.img.snapshots/.one.new$"),
]


class Operation:
    """Something that an administrator does. `verbs` come first, undisturbed; `verb` is what a call fails in."""

    def __init__(self, name, *verb, verbs=(), reflinks=False):
        self.name, self.verb, self.verbs, self.reflinks = name, verb, verbs, reflinks

    def __repr__(self):
        return self.name


NEW = ("lun", "add", "c", "file:{dir}/c.img?size=1M", "--target", IQN, "--lun", "2")
PORTAL = ("portal", "add", IQN, "127.0.0.1:{port2}")
SNAPSHOT = ("snapshot", "create", "a", "one")
CHANGES = [
    Operation("lun-add", *NEW),
    Operation("lun-resize", "lun", "resize", "a", "2M"),
    Operation("lun-rename", "lun", "rename", "a", "z"),
    Operation("lun-remove", "lun", "rm", "spare"),
    Operation("unmap", "target", "unmap", IQN, "2", verbs=[NEW]),
    Operation("target-add", "target", "add", IQN + ":new", "--portals", "127.0.0.1:{port2}"),
    Operation("portal-add", *PORTAL),
    Operation("portal-remove", "portal", "rm", IQN, "127.0.0.1:{port2}", verbs=[PORTAL]),
    Operation("apply", "apply", "{dir}/changed.toml"),
    Operation("rollback", "rollback", "1", verbs=[NEW, ("lun", "rename", "spare", "d"), PORTAL]),
    Operation("snapshot-create", *SNAPSHOT, reflinks=True),
    Operation("snapshot-remove", "snapshot", "rm", "a@one", verbs=[SNAPSHOT], reflinks=True),
    Operation("snapshot-rollback", "snapshot", "rollback", "a@one", "--yes", verbs=[SNAPSHOT], reflinks=True),
    Operation("snapshot-clone", "lun", "add", "c", "file:{dir}/c.img", "--clone", "a@one", "--target", IQN, "--lun", "2",
              verbs=[SNAPSHOT], reflinks=True),
]


class Run:
    """How one run went: `calls` that were counted, `hit` (the call that failed, or None), `is_done`, what was `said`, what is
    `known` of such an end, and what the judge found."""

    def __init__(self, operation, place):
        self.operation, self.place = operation, place
        self.calls, self.hit, self.is_done, self.said, self.findings = 0, None, None, "", []
        self.known = None

    def __repr__(self):
        found = "".join(f"\n    {one}" for one in self.findings)
        return f"{self.operation} {self.place} ({self.hit}): {'done' if self.is_done else 'refused'}: {self.said}{found}"


class World(Tarn):
    """A daemon with three LUNs, of which two are exported, each by a target of its own."""

    def __init__(self, faults, config=CONFIG):
        super().__init__(config=config, prefix=faults.prefix())
        self.faults, self.unit_ids, self.removed = faults, {}, set()
        (self.dir / "changed.toml").write_text(self.filled(CHANGED))

    def filled(self, text):
        return text.replace("{port2}", str(self.port2)).replace("{port}", str(self.port)).replace("{dir}", str(self.dir))

    def ended(self):
        return self.process.poll() is not None

    def begin_again(self):
        """Starts what the file says, which a change may have written."""
        self.config = (self.dir / "tarn.toml").read_text()
        self.begin_well()

    def begin_well(self):
        """Starts, and nothing fails. Rings that are taken down in the background count against what the user may lock."""
        def serves():
            self.begin()
            return self.await_ready() or NO_RING not in self.log_tail(1)
        wait_for(serves, LIMIT_S, "there is memory for rings again", step_s=1)
        if self.ended():
            raise Failure(f"the start ended with {self.process.returncode}: {self.log_tail(3)}")

    def await_ready(self):
        """Whether it serves; False: it has ended."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if self.ended():
                return False
            with contextlib.suppress(OSError):
                # A start that cannot print what it serves goes on without.
                is_over = self.has_said() or (self.faults.hit or "").startswith("write")
                if is_over and self.socket.exists() and self.api(timeout_s=ANSWER_S).ask("GET", "/readyz").status == 200:
                    return True
                if NO_ADMINISTRATION in self.log() and listens(self.port):
                    return True
            time.sleep(0.02)
        raise Failure(f"neither served nor ended within {LIMIT_S} s")

    def tell(self, *verb):
        """Has it do something; returns whether it is done, and what was answered."""
        try:
            done = subprocess.run([BINARY, *map(self.filled, verb)], capture_output=True, text=True, timeout=ANSWER_S,
                                  env=self.environment(), stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise Failure(f"no answer within {ANSWER_S} s to {' '.join(verb)}") from None
        said = done.stdout + done.stderr
        if done.returncode and not done.stderr.startswith("tarn: "):
            raise Failure(f"refused without a reason: exit code {done.returncode}, {said!r}")
        return done.returncode == 0, said

    def told(self, *verb):
        done, said = self.tell(*verb)
        if not done:
            raise Failure(f"{' '.join(verb)}: {said}")

    def write_all(self):
        """Data and a reservation key that must not get lost."""
        for target, id in ((IQN, "a"), (OTHER, "b")):
            with self.session(target) as session:
                write(session, 0, id)
        with self.session(IQN) as session:
            cdb = bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0])
            good(session.command(cdb, write=bytes(8) + KEY.to_bytes(8, "big") + bytes([0, 0, 0, 0, 1, 0, 0, 0])), "REGISTER")

    def session(self, target, port=None):
        session = iscsi.Session(port or self.port, target, timeout_s=ANSWER_S)
        session.clear_unit_attentions()
        return session

    # What is there.

    def plain(self, text):
        """A text without what is different in each run."""
        for value, name in ((self.dir, "DIR"), (self.port2, "PORT2"), (self.port, "PORT")):
            text = text.replace(str(value), name)
        return text

    def seen(self):
        """All that an administrator and initiators see of it, by name."""
        api = self.api(timeout_s=ANSWER_S)
        self.unit_ids = {one["naa"]: one["spec"]["id"] for one in api.get("luns")}
        seen = {
            "running configuration": self.plain(api.get("config")["text"]),
            "luns": {one["spec"]["id"]: (one["size_bytes"], one.get("outage"), one.get("trouble")) for one in api.get("luns")},
            "snapshots": sorted((one["lun"], one["name"]) for one in api.get("snapshots")),
            "ports": self.listening(),
        }
        for target in api.get("targets"):
            name, ports = target["spec"]["name"], [int(one["bind"].rpartition(":")[2]) for one in target["spec"]["portals"]]
            for port in ports:
                seen[f"{name} at {self.plain(str(port))}"] = self.seen_by_initiator(name, port)
        return {**seen, **self.seen_on_disk()}

    def listening(self):
        """At which of its ports this process listens; the second one may be that of another daemon."""
        own = set()
        for one in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):    # closed meanwhile
                own.add(os.readlink(one))
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in own}
        return [port in ports for port in (self.port, self.port2)]

    def seen_by_initiator(self, target, port):
        with self.session(target, port) as session:
            listed = good(session.command(scsi.report_luns(), read=4096), "REPORT LUNS").data
            count = int.from_bytes(listed[:4], "big") // 8
            luns = [int.from_bytes(listed[at:at + 2], "big") & 0x3FFF for at in range(8, 8 + 8 * count, 8)]
            found = {}
            for lun in luns:
                session.clear_unit_attentions(lun)
                data = session.command(scsi.read16(0, 1), read=BLOCK, lun=lun)
                keys = session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0]), read=256, lun=lun)
                size = session.command(scsi.read_capacity16(), read=32, lun=lun).data
                found[lun] = (data.data[:4] if data.good else repr(data), int.from_bytes(size[:8], "big"), keys.data[8:16].hex())
            return found

    def seen_on_disk(self):
        def unit(match):
            return f"units/{self.unit_ids.get(match[1], 'gone')}/"

        def common(name):
            return re.sub(r"history/[^/]+/", "history/", re.sub(r"units/(\w+)/", unit, name))
        files = [str(path.relative_to(self.dir)) for path in self.dir.rglob("*") if not path.is_dir()]
        # Events and figures are saved at any time, under another name first. The state of a LUN that there is no more stays, for
        # `tarn state prune`.
        own, any_time = ("log", "out", "changed.toml"), ("events.next", "figures")
        return {
            "file": self.plain((self.dir / "tarn.toml").read_text()),
            "files": sorted(name for name in map(common, files) if name not in own and not name.removesuffix(SAVES).endswith(any_time)
                            and not name.startswith("state/units/gone/")),
        }


def good(outcome, what):
    if not outcome.good:
        raise Failure(f"{what}: {outcome}")
    return outcome


def write(session, lba, letter):
    good(session.command(scsi.write16(lba, 1), write=letter.encode() * BLOCK), "WRITE")


def differences(got, want):
    """What is not as it must be, a line for each thing."""
    for name in sorted(got.keys() | want.keys()):
        have, need = got.get(name), want.get(name)
        if have != need and isinstance(have, list) and isinstance(need, list) and name == "files":
            more, less = sorted(set(have) - set(need)), sorted(set(need) - set(have))
            yield from [f"left behind: {one}" for one in more] + [f"missing: {one}" for one in less]
        elif have != need and isinstance(have, str) and isinstance(need, str):
            lines = difflib.unified_diff(need.splitlines(), have.splitlines(), "must be", "is", lineterm="", n=0)
            yield f"{name}: {[line for line in lines if line[0] in '+-'][2:]}"
        elif have != need:
            yield f"{name}: {have!r}, must be {need!r}"


def log_findings(tarn):
    """What no log may have."""
    text = tarn.log() + tarn.out()
    for pattern in KNOWN.values():
        text = re.sub(pattern, "", text)
    for line in dict.fromkeys(text.splitlines()):
        if "panicked" in line or line.startswith("confinement: "):
            yield f"log: {line}"


def known_of(text):
    """What is known of an end that this log shows."""
    return next((what for what, pattern in KNOWN.items() if re.search(pattern, text)), None)


def exit_findings(tarn, may_fail=True):
    """How it ended by itself must be with a reason."""
    code = tarn.process.returncode
    if code < 0 and known_of(tarn.log()):
        return
    if code < 0:
        yield f"ended by signal {signal.Signals(-code).name}"
    elif code and not may_fail:
        yield f"exit code {code}"
    elif code and not any(line.startswith("tarn: ") or "ERROR" in line for line in tarn.log().splitlines()):
        yield f"exit code {code} without a reason"


def compare(run, tarn, when, *wanted):
    """It is as one of these says. What a daemon saves in the background has another name for a moment."""
    lines = []
    def is_settled():
        remove_named(tarn)
        seen = tarn.seen()
        lines[:] = min(([*differences(seen, want)] for want in wanted), key=len)
        return not any(line.endswith(SAVES) for line in lines)
    with contextlib.suppress(Failure):
        wait_for(is_settled, SAVED_S, "what is being saved has its name")
    def is_excused(line):
        known = f"{run.hit}\n{tarn.log()}"
        return any(re.search(said, known) and re.search(what, line) for said, what in EXCUSED)
    run.findings += [f"{when}: {line}" for line in lines if not is_excused(line)]
    run.findings += log_findings(tarn)


def stop(run, tarn):
    if tarn.ended():
        return
    code = tarn.terminate(LIMIT_S)
    if code and not (code < 0 and known_of(tarn.log())):
        run.findings.append(f"exit code after SIGTERM: {code}")


def remove_named(tarn):
    """Removes files that the log names as left over, as its reader would."""
    if "the file of before the rollback is left over" in tarn.log():
        (tarn.dir / "a.img.snapshots/.one.new").unlink(missing_ok=True)
    for path in re.findall(r"WARN .*(?:left over|remove it).* path=(\S+)", re.sub(r"\x1b\[\d*m", "", tarn.log())):
        if path not in tarn.removed:
            tarn.removed.add(path)
            (tarn.dir / path).unlink(missing_ok=True)


def restart(run, tarn, *wanted):
    """Serves again what the file says, and all data is there; every file of the state is whole."""
    stop(run, tarn)
    remove_named(tarn)
    checked = subprocess.run([BINARY, "state", "check", "--state", tarn.dir / "state"], capture_output=True, text=True)
    # A start may have ended before it made one.
    if checked.returncode and "state directory" not in checked.stderr:
        run.findings.append(f"state check: {checked.stdout}{checked.stderr}")
    tarn.begin_again()
    compare(run, tarn, "after the restart", *wanted)
    stop(run, tarn)


def examined(body):
    """Runs a body with a run, a world and its faults; what it raises is a finding."""
    def examine(operation, place, **more):
        run = Run(operation, place)
        with Faults() as faults, contextlib.closing(World(faults)) as tarn:
            try:
                body(run, tarn, faults, operation, **more)
            except Exception as problem:    # it is the run that fails
                run.findings.append(f"{type(problem).__name__}: {problem}")
                run.findings += log_findings(tarn)
                run.known = known_of(tarn.log())
                if run.known and "before" in more:
                    after_an_abort(run, tarn, more["before"], more["after"])
            if run.findings:
                run.findings.append("log ends with:\n" + tarn.log_tail(4))
        run.findings = list(dict.fromkeys(run.findings))
        return run
    return examine


def after_an_abort(run, tarn, *wanted):
    """An end that is known: the next start serves what was there before, or what the change has brought."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        tarn.process.wait(LIMIT_S)
        run.findings = [*log_findings(tarn)]
        restart(run, tarn, *wanted)
        run.findings = [line for line in run.findings if not line.endswith(CUT_OFF)]


@examined
def change(run, tarn, faults, operation, before=None, after=None, meddle=None, **how):
    """A change of a daemon that serves. `meddle` is done to it when the change has been answered, for tests of the judge."""
    tarn.begin_well()
    tarn.write_all()
    for verb in operation.verbs:
        tarn.told(*verb)
    if operation.name == "snapshot-rollback":
        with tarn.session(IQN) as session:
            write(session, 0, "x")
    if before is None:
        run.before = tarn.seen()
    with tarn.session(OTHER) as standing:
        faults.arm(run.place, **how)
        try:
            run.is_done, run.said = tarn.tell(*operation.verb)
        finally:
            run.calls, run.hit = faults.disarm(), faults.hit
        # What is said to be done, and not durable, is done.
        run.is_done = run.is_done or IS_DONE in run.said
        if meddle:
            meddle(tarn)
        if tarn.ended():
            raise Failure(f"the daemon ended: {list(exit_findings(tarn, may_fail=False))}")
        write(standing, 1, "s")
    if before is None:
        run.after = tarn.seen()
        restart(run, tarn, run.after)
        return
    if NOT_KNOWN_YET in run.said:
        wait_for(lambda: not list(differences(tarn.seen(), after)), LIMIT_S, "what was not known yet is known", step_s=1)
    compare(run, tarn, *(("answered as done", after) if run.is_done else ("answered as failed", before)))
    if not run.is_done and NOT_PUT_BACK in tarn.log():
        restart(run, tarn, before, after)
        return
    if not run.is_done and run.place % 2:
        restart(run, tarn, before)
        return
    if not run.is_done:
        done, said = tarn.tell(*operation.verb)
        if not done:
            run.findings.append(f"it fails again, undisturbed: {said}")
            return
        compare(run, tarn, "done again", after)
    restart(run, tarn, after)


@examined
def start(run, tarn, faults, operation, before=None, after=None, meddle=None, **how):
    """A start, the first or a later one."""
    if operation.name == "start-again":
        tarn.begin_well()
        tarn.write_all()
        tarn.terminate(LIMIT_S)
    faults.arm(run.place, begins=True, **how)
    tarn.begin()
    try:
        run.is_done = tarn.await_ready()
    finally:
        run.calls, run.hit = faults.disarm(), faults.hit
    if meddle:
        meddle(tarn)
    run.said = tarn.log_tail(1).strip()
    if before is None:
        run.before = run.after = tarn.seen()
        restart(run, tarn, run.after)
        return
    run.findings += log_findings(tarn)
    run.known = known_of(tarn.log())
    if run.is_done:
        # What it cannot serve or keep it names as an error, where its log can be written.
        if "write" not in (run.hit or "") and not re.search(r" ERROR |a lun is not ready", tarn.log()):
            compare(run, tarn, "serving", after)
    else:
        run.findings += exit_findings(tarn)
    restart(run, tarn, after)


@examined
def end(run, tarn, faults, operation, before=None, after=None, meddle=None, **how):
    """The end by SIGTERM."""
    tarn.begin_well()
    tarn.write_all()
    if before is None:
        run.before = run.after = tarn.seen()
    faults.arm(run.place, **how)
    try:
        tarn.process.send_signal(signal.SIGTERM)
        try:
            tarn.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"it does not end within {LIMIT_S} s") from None
    finally:
        run.calls, run.hit = faults.disarm(), faults.hit
    if meddle:
        meddle(tarn)
    run.is_done, run.said = tarn.process.returncode == 0, tarn.log_tail(1).strip()
    run.known = known_of(tarn.log())
    run.findings += [*log_findings(tarn), *exit_findings(tarn)]
    restart(run, tarn, after or run.after)


STARTS = [Operation("start"), Operation("start-again")]
END = Operation("stop")
EVERY = {operation.name: (operation, change) for operation in CHANGES}
EVERY |= {operation.name: (operation, start) for operation in STARTS}
EVERY["stop"] = (END, end)
