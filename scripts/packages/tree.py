"""A folder that becomes a package: its files have fixed times, modes and owners, so that two builds are the same."""

import gzip
import io
import os
import pathlib
import shutil
import tarfile


def compress(content, level=9):
    """As gzip -n: without the name and the time."""
    return gzip.compress(content, level, mtime=0)


def epoch():
    """The time that all files of a package have: SOURCE_DATE_EPOCH."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


class Tree:
    """The folder. Paths are those of the installed system."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        self.root.chmod(0o755)

    def _place(self, path):
        place = self.root / path.lstrip("/")
        for folder in reversed(place.relative_to(self.root).parents):
            if not (self.root / folder).exists():
                (self.root / folder).mkdir(mode=0o755)
                (self.root / folder).chmod(0o755)
        return place

    def copy(self, source, path, mode=0o644):
        shutil.copyfile(source, self._place(path))
        self._place(path).chmod(mode)

    def write(self, path, content, mode=0o644):
        place = self._place(path)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        place.chmod(mode)

    def folder(self, path, mode=0o755):
        place = self._place(path)
        place.mkdir()
        place.chmod(mode)

    def link(self, path, target):
        self._place(path).symlink_to(target)

    def files(self):
        """Everything but folders, sorted."""
        return sorted(path for path in self.root.rglob("*") if path.is_symlink() or not path.is_dir())

    def kilobytes(self):
        return sum(-(-path.lstat().st_size // 1024) for path in self.root.rglob("*"))

    def seal(self):
        """Gives everything the time of the release."""
        for path in [*self.root.rglob("*"), self.root]:
            os.utime(path, (epoch(), epoch()), follow_symlinks=False)

    def tar(self, prefix=""):
        """All of it as bytes of a tar file, sorted, owned by root."""
        self.seal()
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(self.root.rglob("*")):
                entry = archive.gettarinfo(path, f"{prefix}{path.relative_to(self.root)}")
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = "root"
                with open(path, "rb") if entry.isreg() else io.BytesIO() as file:
                    archive.addfile(entry, file if entry.isreg() else None)
        return content.getvalue()
