"""What the engine is made of, and whether that is what was declared.

Engine. The declaration is this file: packages with their exact versions where the models come in the wheel,
and the model files by digest. What is installed is compared with it at load; a difference is a refused
start that names the package. The same manifest goes into every result.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path

from daemon.config_engine import EngineSettings
from daemon.errors import EngineError

#: Packages that take part in a conversion; the exact version where our code leans on it.
DECLARED_PACKAGES: Mapping[str, str | None] = {
    "docling-slim": "2.143.0",
    "docling-core": None,
    "docling-parse": None,
    "pymupdf": "2.0",
    "pypdfium2": None,
    "rapid-layout": "1.2.1",
    "rapidocr": "3.10.0",
    "onnxruntime": "1.32.0",
    "opencv-python-headless": None,
    "numpy": None,
    "pillow": None,
}

#: SHA-256 of the model files, by name, and the package that brings each.
DECLARED_MODELS: Mapping[str, tuple[str, str]] = {
    "layout_rf2.4.1+imf1.onnx": ("9602ca3f4e4f34b50551ccd2af81bea4af7010bd61b2cc10e77de6f7b125cb20", "pymupdf"),
    "feature_imf1.onnx": ("27e30224174d760ca28536b7ca498133745b6b73ad091d67b2acb3617ce1ae51", "pymupdf"),
    "table_grid_model_v4_ep.onnx": ("ec5d393e6fce44ac692ea75e11f0183ea4dcfca1ea434abc38395a1396cd815e", "pymupdf"),
    "layout_cdla.onnx": ("25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c", "rapid-layout"),
    "PP-OCRv6_det_small.onnx": ("090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f", "rapidocr"),
    "PP-OCRv6_rec_small.onnx": ("6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884", "rapidocr"),
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": (
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        "rapidocr",
    ),
}


def check(settings: EngineSettings, *, threads: int, models: Iterable[Path]) -> dict[str, object]:
    """The engine's manifest, as JSON values. `models` are the files of which sessions were really made.

    Raises EngineError when a package or model is missing, or is another than declared.
    """
    files = {path.name: path for path in models}
    digests = {name: _digest(path) for name, path in sorted(files.items())}
    for name, (declared, package) in DECLARED_MODELS.items():
        found = digests.get(name)
        if found is None:
            raise EngineError(f"cannot start: model {name} of package {package} was not loaded; install it again")
        if found != declared:
            detail = f"its sha256 is {found}, declared is {declared}"
            raise EngineError(
                f"cannot start: model {name} of package {package} is another one ({detail}); install it again"
            )
    return {
        "packages": installed_packages(),
        "models": digests,
        "ocr_backend": settings.ocr_backend,
        "languages": list(settings.languages),
        "threads": threads,
        "page_budget_px": settings.page_budget_px,
        "image_budget_px": settings.image_budget_px,
    }


def installed_packages() -> dict[str, str]:
    """Installed versions of the declared packages. Raises EngineError for a missing or different one."""
    versions = {}
    for package, declared in DECLARED_PACKAGES.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise EngineError(
                f"cannot start: package {package} is not installed; install the locked environment"
            ) from error
        if declared is not None and version != declared:
            detail = f"package {package} is {version}, declared is {declared}"
            raise EngineError(f"cannot start: {detail}; install the locked environment")
        versions[package] = version
    return versions


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
