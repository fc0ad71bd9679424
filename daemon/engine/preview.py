"""The first page as a small WebP picture.

Engine. Rendered at a budget of its own, far below that of reading; the full picture never exists. Whoever
calls this treats a failure as the preview's alone.
"""

from __future__ import annotations

import io
import math

from daemon.engine.budget import Budget, within_frame
from daemon.engine.pages import SourcePage


def preview(page: SourcePage, budget: Budget) -> bytes:
    """WebP of at most 300 by 400 px, from a picture whose long edge is at most `budget.preview_px`."""
    size = page.get_size()
    picture, _ = page.picture(wanted=budget.preview_px / math.ceil(max(size.width, size.height)))
    out = io.BytesIO()
    # Fixed settings: the same bytes for the same page. Methods above 2 take twice the time for 3 % of the bytes.
    within_frame(picture).save(out, format="WEBP", quality=80, method=2)
    return out.getvalue()
