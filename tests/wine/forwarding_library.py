"""A library of Windows with one function, which is that of another library.

Wine 8 lacks bcryptprimitives.dll, from which every program in Rust takes its random numbers, such as what jsonschema
stands on. Its one function is there under another name.
"""

from __future__ import annotations

import struct

_ALIGNED, _PAGE = 0x200, 0x1000


def forwarding_library(name: str, function: str, to: str) -> bytes:
    """Return a 64-bit library that exports a function as `to`, "library.function"."""
    names = [item.encode("ascii") + b"\0" for item in (name, function, to)]
    table = 40 + 4 + 4 + 2
    places = [_PAGE + table]
    for item in names[:-1]:
        places.append(places[-1] + len(item))
    exports = struct.pack(
        "<IIHHIIIIIII", 0, 0, 0, 0, places[0], 1, 1, 1, _PAGE + 40, _PAGE + 44, _PAGE + 48
    ) + struct.pack("<IIH", places[2], places[1], 0)
    content = exports + b"".join(names)
    # A forwarded function stands where its library's directory does, so the size of that counts.
    directories = struct.pack("<II", _PAGE, len(content)) + bytes(8 * 15)
    optional = (
        struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, _ALIGNED, 0, 0, 0)
        + struct.pack(
            "<QIIHHHHHHIIIIHH",
            0x180000000,
            _PAGE,
            _ALIGNED,
            6,
            0,
            0,
            0,
            6,
            0,
            0,
            2 * _PAGE,
            _ALIGNED,
            0,
            3,
            0,
        )
        + struct.pack("<QQQQII", 1 << 20, _PAGE, 1 << 20, _PAGE, 0, 16)
        + directories
    )
    header = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, len(optional), 0x2022)
    section = struct.pack(
        "<8sIIIIIIHHI", b".edata\0\0", len(content), _PAGE, _ALIGNED, _ALIGNED, 0, 0, 0, 0, 0x40000040
    )
    dos = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    head = (dos + header + optional + section).ljust(_ALIGNED, b"\0")
    return head + content.ljust(_ALIGNED, b"\0")
