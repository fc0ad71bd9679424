"""Loading the engine that a command line names, in a process that will open documents or fork those that do.

Shell. The factory is code, so only code names it: no setting reaches `--factory` or `--path`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from daemon import sandbox
from daemon.config_engine import EngineSettings
from daemon.engine.api import Engine, Factory
from daemon.errors import EngineError
from daemon.sandbox_parts import Mode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `load` needs; the zygote and a spawned child share it."""
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--factory", required=True)
    parser.add_argument("--path", default="")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--sandbox", type=Mode, required=True)
    parser.add_argument("--scratch-root", type=Path, required=True)


def confinement(arguments: argparse.Namespace) -> sandbox.Confinement:
    """Return what both locks need of the arguments."""
    code = (Path(arguments.path),) if arguments.path else ()
    return sandbox.Confinement(mode=arguments.sandbox, scratch_root=arguments.scratch_root, code=code)


def load(arguments: argparse.Namespace) -> Engine:
    """Load the engine that the arguments name, and warm it up.

    Raises EngineError, naming the package where one is missing.
    """
    if arguments.path:
        sys.path.insert(0, arguments.path)
    module_name, _, function_name = arguments.factory.partition(":")
    try:
        settings = EngineSettings.model_validate_json(arguments.settings)
        factory = cast("Factory", getattr(importlib.import_module(module_name), function_name))
        engine = factory(settings, threads=arguments.threads)
        engine.warm_up()
    except EngineError:
        raise
    except ModuleNotFoundError as error:
        raise EngineError(
            f"cannot load the engine: package {error.name!r} is missing; install the lock again"
        ) from error
    except (
        Exception
    ) as error:  # any other failure to load is the operator's too, and must be said, not shown as a traceback
        raise EngineError(f"cannot load the engine: {type(error).__name__}: {error}") from error
    return engine


def plain(manifest: object) -> dict[str, JsonValue]:
    """Return a manifest as JSON values; what JSON does not know becomes its text."""
    values: dict[str, JsonValue] = json.loads(json.dumps(manifest, default=str))
    return values
