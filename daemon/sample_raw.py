"""Sample documents written byte by byte: what no library would write, or would write anew on every run.

Engine, though it imports nothing native. Every function is pure and returns a whole file.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

from daemon.samples import LIGHTHOUSE


def raw_pdf(objects: Sequence[str], *, trailer: str = "") -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalog."""
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj{text}endobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out += f"trailer<</Size {len(objects) + 1}/Root 1 0 R{trailer}>>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def stream(text: str) -> str:
    """An object that holds a page's drawing."""
    return f"<</Length {len(text)}>>stream\n{text}\nendstream "


HELVETICA = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def page_of(side_pt: int) -> str:
    """A square page, object 3, drawn by object 4 with the font of object 5."""
    box = f"/MediaBox[0 0 {side_pt} {side_pt}]"
    return f"<</Type/Page/Parent 2 0 R{box}/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>"


def one_page(text: str, *, side_pt: int, size_pt: int, catalog: str = "", extra: Sequence[str] = ()) -> bytes:
    """A square page with one line of text; objects after the fifth are `extra`."""
    return raw_pdf(
        (
            f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page_of(side_pt),
            stream(f"BT/F {size_pt} Tf {side_pt // 20} {side_pt // 2} Td({text})Tj ET"),
            HELVETICA,
            *extra,
        )
    )


#: The padding of passwords, out of the PDF reference (algorithm 2, step 1).
PASSWORD_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
FILE_ID = bytes(range(16))
#: What a reader may do, as a signed number: -4 is all, -60 only reading.
READ_ONLY = -60


def rc4(key: bytes, data: bytes) -> bytes:
    """The stream cipher of old PDFs; the same call decrypts."""
    state = list(range(256))
    swap = 0
    for index in range(256):
        swap = (swap + state[index] + key[index % len(key)]) % 256
        state[index], state[swap] = state[swap], state[index]
    out = bytearray()
    first = second = 0
    for byte in data:
        first = (first + 1) % 256
        second = (second + state[first]) % 256
        state[first], state[second] = state[second], state[first]
        out.append(byte ^ state[(state[first] + state[second]) % 256])
    return bytes(out)


def md5(data: bytes) -> bytes:
    """The digest that the format asks for."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def locked(text: str, *, owner: bytes, user: bytes = b"") -> bytes:
    """A PDF encrypted by the standard handler, revision 2; a library's own would take a random id, so other bytes."""
    owner_padded, user_padded = ((each + PASSWORD_PADDING)[:32] for each in (owner, user))
    owner_entry = rc4(md5(owner_padded)[:5], user_padded)
    key = md5(user_padded + owner_entry + struct.pack("<i", READ_ONLY) + FILE_ID)[:5]
    drawing = f"BT/F 20 Tf 35 350 Td({text})Tj ET".encode("latin-1")
    contents = rc4(md5(key + (4).to_bytes(3, "little") + bytes(2))[:10], drawing)
    entries = f"/O<{owner_entry.hex()}>/U<{rc4(key, PASSWORD_PADDING).hex()}>"
    return raw_pdf(
        (
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page_of(700),
            stream(contents.decode("latin-1")),
            HELVETICA,
        ),
        trailer=f"/ID[<{FILE_ID.hex()}><{FILE_ID.hex()}>]/Encrypt<</Filter/Standard/V 1/R 2/P {READ_ONLY}{entries}>>",
    )


def deep_outline(depth: int = 2_000) -> bytes:
    """A page, and bookmarks that nest `depth` levels: a reader that recurses runs out of stack."""
    first = 7
    outline = [f"<</Type/Outlines/First {first} 0 R/Last {first} 0 R/Count 1>>"]
    for level in range(depth):
        own = first + level
        below = f"/First {own + 1} 0 R/Last {own + 1} 0 R/Count 1" if level < depth - 1 else ""
        outline.append(f"<</Title(Level {level + 1})/Parent {own - 1} 0 R/Dest[3 0 R/Fit]{below}>>")
    return one_page(LIGHTHOUSE, side_pt=700, size_pt=20, catalog="/Outlines 6 0 R", extra=outline)


def image_bomb(side_px: int = 20_000) -> bytes:
    """A black PNG of one bit a pixel: 50 KB here, over 1 GB when it is decoded to colours."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side_px, side_px, 1, 0, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = bytes(1 + side_px // 8)
    rows = b"".join(packer.compress(row) for _ in range(side_px)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
