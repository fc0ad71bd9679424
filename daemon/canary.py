"""A document that must always convert: one page, one line, written by hand.

Core. What the doctor and the start of the daemon send through a real child, to see that the declared engine
works on this host before any message is received.
"""

from __future__ import annotations

#: The words that must come back.
CANARY_TEXT = "The canary sings in its own process"


def canary_pdf() -> bytes:
    """A valid one-page PDF of about 600 bytes (ISO 32000-1, sections 7.5 and 9.4), the same bytes each time."""
    content = f"BT /F1 18 Tf 72 700 Td ({CANARY_TEXT}) Tj ET".encode("ascii")
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    pdf = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(pdf)
    pdf += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    pdf += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    pdf += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(pdf)
