"""A control group with a memory limit, for tests of what a program does that has little memory."""
import os
import pathlib
import tempfile

import harness

V2 = pathlib.Path("/sys/fs/cgroup")
V1 = pathlib.Path("/sys/fs/cgroup/memory")


class MemoryGroup:
    """A group that may have `limit_bytes`; exists while the context lasts. `prefix` starts a program in it.

    Skips the test where such a group cannot be made: without root, or without the memory controller.
    """

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.dir = None

    def __enter__(self):
        if os.geteuid() != 0:
            harness.skip("a control group can be made by root only")
        errors = []
        for top, controllers, limit in ((V2, "cgroup.controllers", "memory.max"), (V1, None, "memory.limit_in_bytes")):
            try:
                if controllers:
                    if "memory" not in (top / controllers).read_text().split():
                        raise OSError(f"{top} has no memory controller")
                    (top / "cgroup.subtree_control").write_text("+memory")
                elif not (top / limit).exists():
                    raise OSError(f"{top} is no memory controller")
                self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test.", dir=top))
                (self.dir / limit).write_text(str(self.limit_bytes))
                return self
            except OSError as error:
                errors.append(str(error))
                self.remove()
        harness.skip(f"no control group for memory can be made: {'; '.join(errors)}")

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        if self.dir is not None and self.dir.exists():
            # Its processes may take a moment to be gone.
            harness.wait_for(lambda: self._removed(), 10, f"{self.dir} can be removed")
        self.dir = None

    def _removed(self):
        try:
            self.dir.rmdir()
        except OSError:
            return False
        return True

    @property
    def prefix(self):
        return ["sh", "-c", f'echo $$ > {self.dir}/cgroup.procs && exec "$@"', "sh"]
