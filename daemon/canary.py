"""A document that must always convert: one page of letters, one page that is only a picture of letters.

Core. What the doctor, and a host whose children die, send through a real child, to see that the declared engine
works: the first page needs the parser and the layout model, the second one needs OCR.
"""

from __future__ import annotations

import base64

#: The words that must come back, from the letters and from the picture.
CANARY_TEXT = "The canary sings in its own process"
CANARY_PAINTED = "The canary reads what was painted"
CANARY_PAGES = 2

#: `CANARY_PAINTED` in 18 pt Helvetica: 1 bit a pixel, white is 1, compressed by zlib.
_PICTURE_PX = (500, 67)
_PICTURE = (
    "eNrt1T1u2zAUAGAFLiAPRt3uhTR0yB6vhtgtYw7RCyT1IgOCKCFAvRTWBQrrKnYzqEMRXkGBgr6xIjiUQl7FPipdEitFCi8dxEEk"
    "qPdB/HmkjDmk1GbgAx/4wAc+8L/x5Ej0vAD7wId9Le8q9i9cPOCwx1v+XP6n+//iX/2twek2eIej27MCixRH9XFiiuxTqt0Rhrr0"
    "E3NLAQs3LVn6mO+mCdduEozDUXkmcOroUek6HFafX9XuZRsut75jSgo4f59S8zEvhMdklXvBUlaFwGC+lFAElkeqEsTFes4rCjiX"
    "QM29uV8zplS+iZcNQIYR1QUw4m9QKeIX4jrmFQVcSMiv433OfWWMF3MJkGPUMinAN9XxHA19/WRh1syAMt5FA/m3Hu74ldHEU6hy"
    "RIelAlyj3hIfCXMyw6lLXHuLBpIJ7+dbL46OQPnE50cCEqNmc9TEZ7NymhiQW8udiekZvKlMtonDBhRDNLoRUHN1MkepiL8tRM1B"
    "ZhviOfJefudvYpqbtFwSb5n+EGFFfHWciZbTuO553L/ybBPTa80RqS6+M6bDCMHyVd6tPOt4z8oLn/adefFCWt4GC7vv97zq+Dqg"
    "fWd27lnPvosXXJ9OvPh81/FxvbtxJ1yHiDeXhVllH1+OebmaWP5lP+uEsDmfrONwDEjnJNVjm/OoEevXV0Zk21OHcj5ZL5qbvZy3"
    "hZKG/aSzFXWHDEzU2i57QzS2vgMw0AWoX/dn8am7Tj91rcGzrsrmML47jF8dxp8sP4Z/3MAHPvBD+G8K6Gne"
)


def canary_pdf(*, painted: bool = True) -> bytes:
    """A valid two-page PDF of about 2.5 KB in ASCII (ISO 32000-1, sections 7.5, 8.9, 9.4), the same bytes each time.

    Without what is `painted` it has the page of letters alone, and is converted in a fraction of the time.
    """
    content = f"BT /F1 18 Tf 72 700 Td ({CANARY_TEXT}) Tj ET".encode("ascii")
    painting = b"q 360 0 0 48 72 650 cm /I1 Do Q"
    picture = base64.b64decode(_PICTURE).hex().encode("ascii") + b">"
    width, height = _PICTURE_PX
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R%s] /Count %d >>" % ((b" 6 0 R", CANARY_PAGES) if painted else (b"", 1)),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources <</Font <</F1 5 0 R>>>> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 7 0 R /Resources<</XObject<</I1 8 0 R>>>> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(painting), painting),
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 1 "
        b"/Filter [/ASCIIHexDecode /FlateDecode] /Length %d >>\nstream\n%s\nendstream"
        % (width, height, len(picture), picture),
    )
    # What is painted stands in a comment too: no reader shows it, and an engine that only copies bytes can be tested.
    pdf = bytearray(b"%PDF-1.4\n% " + CANARY_PAINTED.encode("ascii") + b"\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(pdf)
    pdf += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    pdf += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    pdf += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(pdf)
