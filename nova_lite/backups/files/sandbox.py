"""Limits of this process for the rest of its life.

They need no privileges, so they hold below the sandboxes of systemd, in containers, and in a checkout. The process
keeps its open files. It can open no other, start nothing, and send nothing anywhere.
"""

from __future__ import annotations

import ctypes
import platform
import resource
import struct

#: Address space in bytes, and seconds of CPU time.
_MEMORY, _CPU = 1024**3, 600
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
#: System calls of x86_64 that stay: read, write, close, fstat, lseek, memory, signals of this process, pread, futex,
#: time, end and random numbers.
_ALLOWED = (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 24, 25, 28, 60, 131, 202, 228, 231, 318)
_X86_64, _OTHER_NUMBERS = 0xC000003E, 0x40000000
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
#: Instructions of the filter: load a word, jump if equal or at least, return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def enter() -> None:
    """Limit this process. Raises OSError if the kernel refuses. What it imports later is missing."""
    if platform.machine() != "x86_64":
        raise OSError("the filter of system calls is known for x86_64 only")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    program = _program()
    code = ctypes.create_string_buffer(program, len(program))
    filtered = _Program(len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(filtered), 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


def _program() -> bytes:
    """Return the filter: another architecture kills the process, another call fails with EPERM."""
    number = len(_ALLOWED)
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, number, 0, _OTHER_NUMBERS),
        *((_EQUAL, number - index, 0, call) for index, call in enumerate(_ALLOWED)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
