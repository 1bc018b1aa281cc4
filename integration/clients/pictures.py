"""Draws pictures for questions about them."""

import base64
import struct
import zlib


def png(color, width=64, height=48):
    """A circle of a color on grey: a PNG in base64."""
    def pixel(x, y):
        inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (height / 3) ** 2
        return bytes(color if inside else (150, 150, 150))

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(file).decode()
