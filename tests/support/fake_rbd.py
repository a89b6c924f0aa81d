"""A pool of Ceph in a directory, behind the interface of the program ``rbd``."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nova_lite.virt import images as disk_images
from nova_lite.virt.rbd import Rbd, RbdFailure

TIME = "%a %b %d %H:%M:%S %Y"
UNITS = {"B": 1, "G": 1024**3}


@dataclasses.dataclass
class FakeImage:
    """An image: its data in a file, and its snapshots' files by name. ``source``: the reason why it is in the trash.

    ``is_opened`` False: its removal was interrupted after the header had gone.
    """

    id: str
    path: Path
    created: float
    parent: tuple[str, str] | None = None
    snapshots: dict[str, Path] = dataclasses.field(default_factory=dict)
    snapshot_times: dict[str, float] = dataclasses.field(default_factory=dict)
    watchers: list[str] = dataclasses.field(default_factory=list)
    source: str = "USER"
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    is_opened: bool = True


class FakeRbd(Rbd):
    """``rbd`` with one pool. ``before`` is called before each command, and may fail it."""

    def __init__(self, directory: Path) -> None:
        super().__init__("/etc/ceph/ceph.conf", None)
        directory.mkdir()
        self._directory = directory
        self._ids = itertools.count(1)
        self.found: dict[str, FakeImage] = {}
        self.trashed: dict[str, tuple[str, FakeImage]] = {}
        self.commands: list[tuple[str, ...]] = []
        self.before: Callable[[str, tuple[str, ...]], None] = lambda verb, arguments: None

    # --- for tests

    def add(self, name: str, data: bytes = b"", size: int | None = None, age: float = 0.0) -> FakeImage:
        path = self._new_path()
        path.write_bytes(data)
        os.truncate(path, len(data) if size is None else size)
        self.found[name] = FakeImage(path.name, path, time.time() - age)
        return self.found[name]

    def read(self, name: str, size: int) -> bytes:
        with self.found[name].path.open("rb") as file:
            return file.read(size)

    def write(self, name: str, data: bytes) -> None:
        with self.found[name].path.open("r+b") as file:
            file.write(data)

    def size(self, name: str) -> int:
        return self.found[name].path.stat().st_size

    def names(self) -> list[str]:
        return sorted(self.found)

    def verbs(self) -> list[str]:
        return [command[0] for command in self.commands]

    # --- the program

    def run(
        self,
        verb: str,
        *arguments: str,
        timeout: float = 0.0,
        check: Callable[[], None] = lambda: None,
        program: str = "rbd",
    ) -> bytes:
        self.commands.append((verb, *arguments))
        self.before(verb, arguments)
        values, words = _parsed(arguments)
        names = [word.partition("/")[2] for word in words]
        self._require_growth(verb, names, arguments, values)
        result = getattr(self, "_" + verb.replace(" ", "_").replace("-", "_"))(names, words, values)
        return json.dumps(result).encode()

    @contextlib.contextmanager
    def output(self, verb: str, *arguments: str, timeout: float) -> Iterator[Any]:
        self.before(verb, arguments)
        with self._data(_parsed(arguments)[1][0].partition("/")[2]).open("rb") as file:
            yield file

    def _new_path(self) -> Path:
        return self._directory / f"{next(self._ids)}"

    def _copy(self, source: Path | str) -> Path:
        target = self._new_path()
        disk_images.run("cp", "--sparse=always", str(source), str(target))
        return target

    def _get(self, name: str) -> FakeImage:
        if name not in self.found:
            raise RbdFailure(f"rbd: {name} is missing", errno.ENOENT)
        return self.found[name]

    def _data(self, name: str) -> Path:
        image, _, snapshot = name.partition("@")
        found = self._get(image)
        return found.snapshots[snapshot] if snapshot else found.path

    def _require_new(self, name: str) -> None:
        if name in self.found:
            raise RbdFailure(f"rbd: {name} exists", errno.EEXIST)

    def _create(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        self._require_new(names[0])
        self.add(names[0], size=_bytes(values["--size"]))

    def _info(self, names: list[str], words: list[str], values: dict[str, str]) -> dict[str, Any]:
        if "--image-id" in values:
            every = [*self.found.values(), *(image for _, image in self.trashed.values())]
            image = next((image for image in every if image.id == values["--image-id"] and image.is_opened), None)
            if image is None:
                raise RbdFailure("rbd: missing", errno.ENOENT)
        else:
            image = self._get(names[0])
        shown: dict[str, Any] = {"id": image.id, "size": image.path.stat().st_size, "name": "ignored"}
        shown["create_timestamp"] = time.strftime(TIME, time.gmtime(image.created))
        if image.parent is not None:
            known = {image.id for image in self.found.values()}
            shown["parent"] = {"pool": "pool", "id": image.parent[0], "trash": image.parent[0] not in known}
        return shown

    def _ls(self, names: list[str], words: list[str], values: dict[str, str]) -> list[Any]:
        if "--long" not in words:
            return self.names()
        images: list[Any] = [{"image": name, "size": 1} for name in self.names()]
        return images + [
            {"image": name, "snapshot": snapshot} for name in self.names() for snapshot in self.found[name].snapshots
        ]

    def _status(self, names: list[str], words: list[str], values: dict[str, str]) -> dict[str, Any]:
        return {"watchers": [{"address": address, "client": 1} for address in self._get(names[0]).watchers]}

    def _resize(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        os.truncate(self._get(names[0]).path, _bytes(values["--size"]))

    def _require_growth(self, verb: str, names: list[str], arguments: tuple[str, ...], values: dict[str, str]) -> None:
        if verb == "resize" and "--allow-shrink" not in arguments and _bytes(values["--size"]) < self.size(names[0]):
            raise RbdFailure("rbd: shrinking an image is only allowed with the --allow-shrink flag", errno.EINVAL)

    def _rename(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        image = self._get(names[0])
        self._require_new(names[1])
        self.found[names[1]] = image
        del self.found[names[0]]

    def _snap_create(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        image, snapshot = names[0].split("@")
        found = self._get(image)
        found.snapshots[snapshot] = self._copy(found.path)
        found.snapshot_times[snapshot] = time.time()

    def _snap_rm(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        image, snapshot = names[0].split("@")
        self._get(image).snapshots.pop(snapshot)

    def _snap_purge(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        self._get(names[0]).snapshots.clear()

    def _snap_ls(self, names: list[str], words: list[str], values: dict[str, str]) -> list[dict[str, str]]:
        image = self._get(names[0])
        times = {name: time.strftime(TIME, time.gmtime(image.snapshot_times[name])) for name in image.snapshots}
        return [{"name": name, "timestamp": text} for name, text in times.items()]

    def _clone(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        source, target = names
        self._require_new(target)
        path = self._copy(self._data(source))
        parent = self._get(source.partition("@")[0])
        self.found[target] = FakeImage(path.name, path, time.time(), parent=(parent.id, source))

    def _flatten(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        self._get(names[0]).parent = None

    def _require_no_clones(self, image: FakeImage) -> None:
        every = [*self.found.values(), *(image for _, image in self.trashed.values())]
        if image.snapshots or any(other.parent and other.parent[0] == image.id for other in every):
            raise RbdFailure("rbd: it has clones", errno.ENOTEMPTY)

    def _rm(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        if names[0] not in self.found:
            # The removal of an image of this name is resumed.
            for name, image in self.trashed.values():
                if (name, image.source) == (names[0], "REMOVING"):
                    self._trash_rm([image.id], words, values)
                    return
        removed = self._get(names[0])
        self._require_no_clones(removed)
        # The image is lost under all its names.
        self.found = {name: image for name, image in self.found.items() if image is not removed}

    def _trash_mv(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        image = self._get(names[0])
        self.trashed[image.id] = (names[0], image)
        del self.found[names[0]]

    def _trash_rm(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        if names[0] not in self.trashed:
            raise RbdFailure("rbd: missing", errno.ENOENT)
        self._require_no_clones(self.trashed[names[0]][1])
        del self.trashed[names[0]]

    def _trash_ls(self, names: list[str], words: list[str], values: dict[str, str]) -> list[dict[str, str]]:
        shown = []
        for name, image in self.trashed.values():
            if "--long" in words and image.is_opened:
                shown.append({"id": image.id, "name": name, "source": image.source})
            elif "--long" not in words and ("--all" in words or image.source in ("USER", "USER_PARENT")):
                shown.append({"id": image.id, "name": name})
        return shown

    def _import(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        self._require_new(names[1])
        path = self._copy(words[0])
        self.found[names[1]] = FakeImage(path.name, path, time.time())

    def _export(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        if os.path.exists(words[1]):
            raise RbdFailure("rbd: it exists", errno.EEXIST)
        disk_images.run("cp", "--sparse=always", str(self._data(names[0])), words[1])
        os.chmod(words[1], 0o600)

    def _image_meta_set(self, names: list[str], words: list[str], values: dict[str, str]) -> None:
        self._get(names[0]).metadata[words[1]] = words[2]

    def _image_meta_list(self, names: list[str], words: list[str], values: dict[str, str]) -> dict[str, str]:
        return self._get(names[0]).metadata

    def _df(self, names: list[str], words: list[str], values: dict[str, str]) -> dict[str, Any]:
        return {"pools": [{"name": "pool", "stats": {"stored": 3 << 30, "max_avail": 7 << 30, "bytes_used": 9 << 30}}]}


def _bytes(size: str) -> int:
    return int(size[:-1]) * UNITS[size[-1]]


def _parsed(arguments: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return the options that have a value, and the words, with options that decide what is shown."""
    values, words, rest = {}, [], iter(arguments)
    for argument in rest:
        if argument in ("--no-progress", "--allow-shrink"):
            continue
        if argument.startswith("--") and argument not in ("--all", "--long"):
            values[argument] = next(rest)
        else:
            words.append(argument)
    return values, words
