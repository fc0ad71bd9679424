"""`bulkhead run` with a fake engine, as a process of its own: `python -m tests.system.fake_daemon FOLDER FACTORY`.

The engine is code, so no setting names it; this names it in code, and everything else is the real daemon. A third word
names its host, where two hosts are played on one.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from daemon import host
from daemon.cli_shared import settings_of
from daemon.run import run
from daemon.warming import Parts

if __name__ == "__main__":
    folder, factory, *names = sys.argv[1:]
    here = replace(host.holder(), host=names[0]) if names else host.holder()
    run(settings_of(None), parts=Parts(engine_factory=factory, engine_path=folder, holder=lambda: here))
