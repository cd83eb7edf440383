"""A Gluster volume of one brick, in a network namespace of its own, so that nothing of this machine is touched. Needs root.

    with Volume(directory, {"disk.qcow2": path}) as volume:
        ... commands prefixed with volume.inside reach volume.url + "disk.qcow2" ...
"""
import os
import pathlib
import shutil
import signal
import subprocess

from harness import wait_for

ADDRESS = "10.199.0.1"
NAMESPACE = f"tarn-gluster-{os.getpid()}"
NEEDS = ["/usr/sbin/glusterd=glusterfs-server", "/usr/lib/*/qemu/block-gluster.so=qemu-block-extra", "ip=iproute2"]
CONFIG = """volume management
    type mgmt/glusterd
    option working-directory {0}/lib
    option run-directory {0}/run
    option glusterd-sockfile {0}/cli
    option transport-type socket
    option transport.socket.bind-address {1}
end-volume
"""


class Volume:
    """Started with these files in it, by name, as copies."""

    def __init__(self, directory, files):
        self.directory = pathlib.Path(directory)
        self.files = files
        self.inside = ["ip", "netns", "exec", NAMESPACE]
        self.url = f"gluster://{ADDRESS}/disks/"
        self.daemon = None

    def _ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def _cli(self, *arguments):
        command = [*self.inside, "gluster", f"--glusterd-sock={self.directory}/cli", f"--log-file={self.directory}/cli.log",
                   "--mode=script", "volume", *arguments]
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0

    def __enter__(self):
        try:
            return self._start()
        except BaseException:
            self.__exit__()
            raise

    def _start(self):
        self._ip("netns", "add", NAMESPACE)
        self._ip("-n", NAMESPACE, "link", "set", "lo", "up")
        self._ip("-n", NAMESPACE, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        for name in ("lib", "run", "brick"):
            (self.directory / name).mkdir()
        # What lies in a brick before it is used gets its place in the volume when it is looked up.
        for name, path in self.files.items():
            shutil.copy(path, self.directory / "brick" / name)
        config = self.directory / "glusterd.vol"
        config.write_text(CONFIG.format(self.directory, ADDRESS))
        self.daemon = subprocess.Popen([*self.inside, "glusterd", "--no-daemon", "-f", config, "-p", self.directory / "pid",
                                        "-l", self.directory / "daemon.log"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # It listens before it can do that.
        wait_for(lambda: self._cli("create", "disks", f"{ADDRESS}:{self.directory}/brick", "force"), 30, "the volume is made", 0.5)
        wait_for(lambda: self._cli("start", "disks"), 30, "the volume is started", 0.5)
        return self

    def __exit__(self, *_):
        listed = subprocess.run(["ip", "netns", "pids", NAMESPACE], capture_output=True, text=True).stdout
        for pid in listed.split():
            subprocess.run(["kill", f"-{int(signal.SIGKILL)}", pid], capture_output=True)
        if self.daemon is not None:
            self.daemon.wait()
        subprocess.run(["ip", "netns", "del", NAMESPACE], capture_output=True)
