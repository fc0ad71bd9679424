"""When the engine refuses to load, and what it says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.config_engine import EngineSettings
from daemon.engine import manifest
from daemon.errors import EngineError

if TYPE_CHECKING:
    from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

LOAD = (
    "from daemon.config_engine import EngineSettings as S; "
    "from daemon.engine.pipeline import load; load(S({}), threads=1)"
)


def refusal(code: str, environment: Mapping[str, str] | None = None) -> str:
    """The last line that an interpreter of its own writes to stderr."""
    inherited = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode != 0
    return result.stderr.strip().splitlines()[-1]


def test_onnxruntime_imported_before_the_opt_out_is_refused() -> None:
    """Its telemetry thread cannot be stopped afterwards."""
    assert "ORT_DISABLE_TELEMETRY=1" in refusal("import onnxruntime; " + LOAD.format(""))


def test_pymupdf_imported_first_is_refused() -> None:
    """Its sessions would have one thread per CPU, and no fork would be safe."""
    said = refusal("import pymupdf; " + LOAD.format(""), {"ORT_DISABLE_TELEMETRY": "1"})
    assert "pymupdf was imported before" in said


@pytest.mark.parametrize(("language", "why"), [("tlh", "it is not known here"), ("es", "rapidocr lacks '¡'")])
def test_a_language_that_the_model_cannot_read_is_refused(language: str, why: str) -> None:
    """Nobody finds out from ten thousand pages of rubbish; what can be read instead is listed, and nothing else is."""
    said = refusal(LOAD.format(f"languages=('en', {language!r})"))
    assert f"cannot promise OCR in {language!r}" in said
    assert why in said
    assert "which are de, en, fr, it, ja, pt, zh (engine.languages)" in said


SESSIONS = """
import gc, onnxruntime
sessions = [o for o in gc.get_objects() if isinstance(o, onnxruntime.InferenceSession)]
print(*("pymupdf" in s._model_path for s in sessions if s.get_session_options().enable_mem_pattern))
"""


def test_no_plan_is_kept_for_each_page_size() -> None:
    """A document of many different pages must not need more memory with each: graphs have no fixed size."""
    command = [sys.executable, "-c", LOAD.format("").replace("; load(", "; engine = load(") + SESSIONS]
    planned = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert set(planned) == {"False"}, "the others keep theirs"


def test_the_manifest_names_packages_models_and_threads(worker: Worker) -> None:
    """What converted a document can be told from its result."""
    said = worker.hello["manifest"]
    assert said["ocr_backend"] == "rapidocr-onnxruntime"
    assert said["languages"] == ["zh", "en"]
    assert said["threads"] == 1
    assert said["packages"]["pymupdf"] == "2.0"
    assert set(said["models"]) == set(manifest.DECLARED_MODELS)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator reads which one to install."""
    monkeypatch.setattr(manifest, "DECLARED_PACKAGES", {"no-such-package": None})
    with pytest.raises(EngineError, match="package no-such-package is not installed"):
        manifest.installed_packages()


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine other than the declared one does not start."""
    monkeypatch.setattr(manifest, "DECLARED_PACKAGES", {"pydantic": "0.0.1"})
    with pytest.raises(EngineError, match=r"package pydantic is .*, declared is 0\.0\.1"):
        manifest.installed_packages()


def test_a_changed_model_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model file that was exchanged or cut short is caught before the first document."""
    model = tmp_path / "net.onnx"
    model.write_bytes(b"short")
    monkeypatch.setattr(manifest, "DECLARED_MODELS", {"net.onnx": ("0" * 64, "rapidocr")})
    with pytest.raises(EngineError, match=r"model net\.onnx of package rapidocr is another one"):
        manifest.check(EngineSettings(), threads=1, models=[model])


def test_a_model_that_was_not_loaded_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared and not there is a refused start."""
    monkeypatch.setattr(manifest, "DECLARED_MODELS", {"net.onnx": ("0" * 64, "rapidocr")})
    with pytest.raises(EngineError, match=r"model net\.onnx of package rapidocr was not loaded"):
        manifest.check(EngineSettings(), threads=1, models=[])
