"""Disk images: inspection by qemu-img, and checks whether an image may be used.

Images come from users. What a header claims (a backing file, an absurd size) must neither reach a guest nor harm the
host. So qemu-img runs with limits on CPU time and memory, and the checks here come before any use.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import concurrency, exceptions
from nova_lite.base.timing import TIMING
from nova_lite.image import formats, ova, qcow2
from nova_lite.objects import Image

LOG = logging.getLogger(__name__)

GIB = 1024**3

#: qemu's format by an image's ``disk_format``.
QEMU_FORMATS = {
    "raw": "raw",
    "ami": "raw",
    "aki": "raw",
    "ari": "raw",
    "iso": "raw",
    "qcow2": "qcow2",
    "vmdk": "vmdk",
    "vdi": "vdi",
    "vhd": "vpc",
    "vhdx": "vhdx",
}

#: Address space, in bytes, that qemu-img may use to inspect an image, which may be malicious.
CHECK_MEMORY = GIB
#: Address space, in bytes, that flattening a disk may use.
FLATTEN_MEMORY = 2 * GIB

#: Formats that guests' disks may have. Other formats are converted to raw.
DISK_FORMATS = ("raw", "qcow2")


class DiskInfo(msgspec.Struct, frozen=True):
    """Properties of a disk. ``virtual_size``: bytes that a guest sees. ``data_files``: other files that the image
    refers to. ``backing``: the one below it, as the image names it, and ``backing_format`` as the image says."""

    format: str
    virtual_size: int
    data_files: list[str]
    backing: str = ""
    backing_format: str = ""


class QemuImg:
    """qemu-img, with limits wherever it reads user data."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._limits = [
            "prlimit",
            f"--cpu={TIMING.libvirt.image_check_cpu}",
            f"--as={CHECK_MEMORY}",
        ]
        self._convert_seconds = conf.libvirt.image_convert_seconds

    def info(self, path: str, disk_format: str) -> DiskInfo:
        """Inspect one file of qemu's format ``disk_format``, without guessing the format or following references.

        Raises `VirtDriverError`.
        """
        command = [*self._limits, "qemu-img", "info", "--output=json", "--force-share", "-f", disk_format]
        answer: dict[str, Any] = msgspec.json.decode(run(*command, file_argument(path)))
        specific = (answer.get("format-specific") or {}).get("data") or {}
        references = [answer.get("backing-filename"), specific.get("data-file")]
        # The one extent of a sparse VMDK file is the file itself.
        extents = [extent["filename"] for extent in specific.get("extents", [])]
        references += [name for name in extents if name != file_argument(path)]
        return DiskInfo(
            format=answer["format"],
            virtual_size=answer["virtual-size"],
            data_files=[str(reference) for reference in references if reference],
            backing=str(answer.get("backing-filename") or ""),
            backing_format=str(answer.get("backing-filename-format") or ""),
        )

    def check(self, image: Image, path: str) -> DiskInfo:
        """Check an image's data before anything else uses them. An OVA archive is replaced by its first disk.

        qemu-img's error is only logged, because it names files of this host. Raises `ImageUnacceptable`.
        """
        if image.container_format == ova.OVA:
            concurrency.call_blocking(ova.unpack, path, image.id)
        formats.check(path, image.disk_format, image.id)
        try:
            info = self.info(path, qemu_format(image))
            check_acceptable(image, info)
            if info.format == "vmdk":  # Missing data would be zeros.
                limits = ["prlimit", f"--cpu={self._convert_seconds}", f"--as={CHECK_MEMORY}"]
                run(*limits, "qemu-img", "check", "-q", "-f", "vmdk", file_argument(path))
        except exceptions.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be read: %s", image.id, image.disk_format, error)
            raise exceptions.ImageUnacceptable(image_id=image.id, reason="it cannot be read") from error
        return info

    def convert(self, source: str, info: DiskInfo, target: str, check: Callable[[], None] = lambda: None) -> None:
        """Convert to the raw file ``target``, no bigger than the header says, under limits of CPU time and memory.

        ``check`` may cancel it by raising.
        """
        limits = [f"--cpu={self._convert_seconds}", f"--as={FLATTEN_MEMORY}", f"--fsize={info.virtual_size}"]
        command = ["qemu-img", "convert", "-f", info.format, "-O", "raw", file_argument(source), target]
        run_checked(check, "prlimit", *limits, *command)

    def encrypt(self, source: str, source_format: str, target: str, passphrase: str, check: Callable[[], None]) -> None:
        """Write the content of a disk into ``target``, a LUKS file that is not smaller. ``check`` may cancel it by
        raising.

        qemu-img reads the passphrase from an anonymous file, so that neither a disk nor its command line has it.
        """
        reading = f"driver={source_format},file.driver=file,file.filename={_option(file_argument(source))}"
        writing = f"driver=luks,key-secret=key,file.driver=file,file.filename={_option(file_argument(target))}"
        descriptor = os.memfd_create("key")
        try:
            os.write(descriptor, passphrase.encode())
            run_checked(
                check,
                "prlimit",
                f"--cpu={self._convert_seconds}",
                f"--as={FLATTEN_MEMORY}",
                "qemu-img",
                "convert",
                "-n",
                "--object",
                f"secret,id=key,file=/proc/self/fd/{descriptor}",
                "--image-opts",
                "--target-image-opts",
                reading,
                writing,
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)

    def flatten(self, source: str, source_format: str, target: str, check: Callable[[], None]) -> None:
        """Make ``target``, a qcow2 file with everything that a guest sees of ``source``. ``check`` may cancel it by
        raising.

        It has a limit of memory, but not of time: that depends on the disk's size.
        """
        memory = f"--as={FLATTEN_MEMORY}"
        command = ["prlimit", memory, "qemu-img", "convert", "-f", source_format, "-O", "qcow2", source, target]
        run_checked(check, "setpriv", "--pdeathsig", "KILL", "nice", *command)

    def commit(self, top: str, base: str, check: Callable[[], None]) -> None:
        """Write the data of the unused qcow2 file ``top`` into ``base``, a file below it. ``top`` stays as it is."""
        self._work_on(check, "commit", "-q", "-f", "qcow2", "-d", "-b", file_argument(base), file_argument(top))

    def rebase(self, path: str, base: tuple[str, str] | None, check: Callable[[], None], unsafe: bool = False) -> None:
        """Put the unused qcow2 file ``path`` on top of ``base``: name in its directory and format; None for nothing.

        It gets the data of the files in between, unless ``unsafe``: then ``base`` has them.
        """
        name, kind = ("", "") if base is None else base
        options = [*(["-F", kind] if kind else []), *(["-u"] if unsafe else [])]
        self._work_on(check, "rebase", "-q", "-f", "qcow2", "-b", name, *options, file_argument(path))

    def _work_on(self, check: Callable[[], None], *command: str) -> None:
        """Run qemu-img with a limit of memory. ``check`` may cancel it by raising."""
        memory = f"--as={FLATTEN_MEMORY}"
        run_checked(check, "setpriv", "--pdeathsig", "KILL", "nice", "prlimit", memory, "qemu-img", *command)

    def remove_bitmaps(self, path: str) -> None:
        """Remove the bitmaps of a qcow2 file that no program has open."""
        if not qcow2.has_bitmaps(path):
            return
        command = [*self._limits, "qemu-img", "info", "--output=json", "-f", "qcow2", file_argument(path)]
        answer: dict[str, Any] = msgspec.json.decode(run(*command))
        specific = (answer.get("format-specific") or {}).get("data") or {}
        for bitmap in specific.get("bitmaps", []):
            run("qemu-img", "bitmap", "-f", "qcow2", "--remove", file_argument(path), str(bitmap["name"]))

    def create_overlay(self, path: str, backing: str, backing_format: str, size: int) -> None:
        """Make a qcow2 file of ``size`` bytes on top of ``backing``, which is not opened: a guest may write to it."""
        run(
            *self._limits,
            "qemu-img",
            "create",
            "-q",
            "-u",
            "-f",
            "qcow2",
            "-b",
            backing,
            "-F",
            backing_format,
            path,
            str(size),
        )


def file_argument(path: str) -> str:
    """Return a form of the path that qemu-img takes as a file name, whatever its first characters."""
    return os.path.join(".", path) if not os.path.isabs(path) else path


def _option(value: str) -> str:
    """Return a value as qemu reads it in a list of options, where a comma separates."""
    return value.replace(",", ",,")


def run(*command: str, text: str = "") -> bytes:
    """Run a program and return its standard output. ``text``: its input.

    Raises `VirtDriverError` with the last line of its errors.
    """
    try:
        result = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{command[0]} cannot be run: {error.strerror}") from error
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace").strip().splitlines()
        tool = next(word for word in command if word != "prlimit" and not word.startswith("--"))
        reason = errors[-1] if errors else f"it ended with status {result.returncode}"
        raise exceptions.VirtDriverError(reason=f"{tool}: {reason}")
    return result.stdout


def run_checked(check: Callable[[], None], *command: str, pass_fds: Sequence[int] = ()) -> None:
    """Run a program that may take long. ``check`` is called every second, and may end it by raising.

    Raises as `run`.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, pass_fds=pass_fds
            )
        except OSError as error:
            raise exceptions.VirtDriverError(reason=f"{command[0]} cannot be run: {error.strerror}") from error
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(1.0)
                    break
                check()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if status != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"it ended with status {status}"
            tool = "qemu-img" if "qemu-img" in command else command[0]
            raise exceptions.VirtDriverError(reason=f"{tool}: {reason}")


def qemu_format(image: Image) -> str:
    """Return qemu's name of the image's declared format. Raises `ImageUnacceptable`."""
    try:
        return QEMU_FORMATS[image.disk_format]
    except KeyError as error:
        raise exceptions.ImageUnacceptable(
            image_id=image.id,
            reason=f"disk format {image.disk_format} is not supported, only {', '.join(sorted(QEMU_FORMATS))}",
        ) from error


def check_acceptable(image: Image, info: DiskInfo) -> None:
    """Raise `ImageUnacceptable` unless the file has the declared format and refers to no other file."""
    declared = qemu_format(image)
    if info.format != declared:
        raise exceptions.ImageUnacceptable(
            image_id=image.id, reason=f"its format is declared as {image.disk_format}, but is {info.format}"
        )
    if info.data_files:
        raise exceptions.ImageUnacceptable(image_id=image.id, reason="it refers to other files")


def check_fits(image_size: int, root_gb: int) -> None:
    """Check the image's virtual size (bytes) against the flavor's root disk (GB, 0: any).

    Raises `FlavorDiskTooSmall`.
    """
    if root_gb and image_size > root_gb * GIB:
        raise exceptions.FlavorDiskTooSmall(flavor_size=root_gb, image_min_disk=-(-image_size // GIB))
