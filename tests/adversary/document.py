"""The configuration file and those who look at it: what lies at its path, and who asks at once."""
import os
import threading

from harness import check, equal, test
from tarn import Tarn, lun_section, target_section

CONFIG = lun_section("disk", "mem:16M") + target_section("disk")
MIB = 1 << 20


def found(api):
    """What is found wrong with the file."""
    return [finding["code"] for finding in api.get("findings") if finding["code"].startswith("file-")]


@test
def a_configuration_path_that_is_no_regular_file_holds_up_nobody():
    """A pipe, a directory, a file of 3 GiB: findings are answered and say so, a change is refused, and both go on afterwards."""
    with Tarn(config=CONFIG) as tarn:
        api, file = tarn.api(), tarn.dir / "tarn.toml"
        equal(found(api), [], "findings at first")
        text, before = file.read_text(), tarn.rss_bytes()
        for make in (lambda: os.mkfifo(file), file.mkdir, lambda: file.open("wb").truncate(3 << 30)):
            file.unlink()
            make()
            equal(found(api), ["file-invalid"], "findings")
            equal(api.ask("GET", "status").status, 200, "status")
            answer = api.ask("PUT", "luns/more", {"id": "more", "store": "mem:1M"})
            equal((answer.status, answer.kind), (409, "apply-failed"), f"a change: {answer.body}")
            file.rmdir() if file.is_dir() else file.unlink()
            file.write_text(text)
            equal(found(api), [], "findings afterwards")
        check(tarn.rss_bytes() < before + 64 * MIB, f"{(tarn.rss_bytes() - before) // MIB} MiB more")
        api.put("luns/more", {"id": "more", "store": "mem:1M"})
        tarn_text = api.get("config")["text"]
        equal(file.read_text(), tarn_text, "the file after a change")


@test
def who_asks_at_once_is_told_the_same_of_the_file():
    """Three who ask for findings while changes are made: the file is what runs, and nobody is told otherwise."""
    with Tarn(config=CONFIG) as tarn:
        wrong = []

        def ask():
            with tarn.api() as api:
                for _ in range(40):
                    wrong.extend(found(api))
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        with tarn.api() as api:
            while any(thread.is_alive() for thread in threads):
                api.put("luns/more", {"id": "more", "store": "mem:1M"})
                api.delete("luns/more")
        equal(wrong, [], "findings about a file that is what runs")
        file = tarn.dir / "tarn.toml"
        file.write_text(file.read_text() + "# by hand\n")
        equal([found(tarn.api()) for _ in range(3)], [["file-edited"]] * 3, "findings after an edit by hand")
        file.write_text("junk = ")
        equal([found(tarn.api()) for _ in range(3)], [["file-invalid"]] * 3, "findings about junk")
