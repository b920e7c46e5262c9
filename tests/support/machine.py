"""A machine of its own for a test that installs packages: systemd as its first process, in namespaces, on a layer over
this system's files. What the test changes there is in the layer, which goes with the test.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from support.waiting import eventually

# None of the host's services starts in it.
BOOT = r"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --bind "$1" mnt
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
rm -rf etc/systemd/system/*.wants
# Containers forbid packages to start services, and manual pages take long to index.
rm -f usr/sbin/policy-rc.d var/lib/man-db/auto-update
ip link set lo up
exec env -i container=poolhouse-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot . /lib/systemd/systemd --system --unit=basic.target --log-target=null --show-status=0
"""


class Machine:
    """Everything in the folder `shared` is there as /mnt/shared."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.upper, self.shared = self.folder / "upper", self.folder / "shared"
        for name in ("upper", "work", "root", "shared"):
            (self.folder / name).mkdir()
        self.log = (self.folder / "log").open("wb")
        namespaces = ["--mount", "--pid", "--net", "--cgroup", "--uts", "--ipc"]
        self.boot = subprocess.Popen(["unshare", *namespaces, "--fork", "--kill-child", "bash", "-c", BOOT, "boot", str(self.folder)],
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        eventually("systemd answers", self.is_up, seconds=30)

    def is_up(self):
        if self.boot.poll() is not None:
            pytest.skip(f"no machine of its own can be had here: {(self.folder / 'log').read_text()[-400:]}")
        return self.first_process() and self.run("systemctl", "is-active", "basic.target", check=False).returncode == 0

    def first_process(self):
        children = pathlib.Path(f"/proc/{self.boot.pid}/task/{self.boot.pid}/children").read_text().split()
        return children[0] if children else None

    def inside(self, *command, user="root"):
        """The words that run a command in the machine."""
        words = ["nsenter", "--target", self.first_process(), "--mount", "--pid", "--net", "--cgroup", "--uts", "--ipc", "--root"]
        environment = ["env", "-i", "-C", "/", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return [*words, *environment, *([] if user == "root" else ["runuser", "-u", user, "--"]), *command]

    def run(self, *command, check=True, user="root"):
        done = subprocess.run(self.inside(*command, user=user), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=80)
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}"
        return done

    def says(self, *command, user="root"):
        return self.run(*command, user=user).stdout.strip()

    def start(self, *command, user="root", **options):
        """A command that goes on running."""
        return subprocess.Popen(self.inside(*command, user=user), text=True, **options)

    def changed_files(self):
        """The files that are not as on the host, without what any installation writes."""
        passed_over = ("/var/lib/dpkg", "/var/lib/systemd", "/var/log", "/var/cache", "/etc/systemd/system", "/srv", "/etc/passwd-", "/etc/shadow-",
                       "/etc/group-", "/etc/gshadow-", "/etc/machine-id", "/etc/.pwd.lock", "/etc/resolv.conf", "/var/lib/private", "/var/lib/man-db", "/usr/sbin/policy-rc.d")
        files = [f"/{path.relative_to(self.upper)}" for path in self.upper.rglob("*") if path.is_symlink() or not path.is_dir()]
        return sorted(file for file in files if not file.startswith(passed_over))

    def stop(self):
        if first := self.first_process() if self.boot.poll() is None else None:
            os.kill(int(first), signal.SIGKILL)
        self.boot.wait(20)
        self.log.close()


@pytest.fixture
def machine():
    """A machine; its folder is on the disk, because the layer cannot be on a layer."""
    if os.geteuid() != 0 or not shutil.which("nsenter") or not pathlib.Path("/lib/systemd/systemd").exists():
        pytest.skip("a machine of its own needs root, nsenter and systemd")
    folder = tempfile.mkdtemp(prefix="poolhouse-machine-", dir="/var/tmp")
    made = Machine(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
