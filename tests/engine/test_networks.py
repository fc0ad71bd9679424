"""Networks that are written with other operators before they are loaded: the same function, nothing else touched."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.engine import networks, runtime

pytestmark = pytest.mark.engine

FLOAT, DOUBLE = 1, 11


def network(slopes: bytes, *, data_type: int = FLOAT, more: str = "") -> bytes:
    """A file with one PRelu, its slopes, and a node of the operator `more` that takes them too."""
    made: Any = networks._model()()
    made.graph.node.add(op_type="PRelu", input=["x", "slope"])
    if more:
        made.graph.node.add(op_type=more, input=["x", "slope"])
    made.graph.initializer.add(name="slope", data_type=data_type, raw_data=slopes)
    return bytes(made.SerializeToString())


def operators(file: bytes) -> list[str]:
    """The operators of a file, in order."""
    made: Any = networks._model()()
    made.ParseFromString(file)
    return [node.op_type for node in made.graph.node]


def slopes_kept(file: bytes) -> list[str]:
    """Names of the initializers of a file."""
    made: Any = networks._model()()
    made.ParseFromString(file)
    return [each.name for each in made.graph.initializer]


def test_the_layout_network_is_the_same_function() -> None:
    """PyMuPDF's network of page pictures, as it is in the wheel and as it is loaded, on noise."""
    runtime.prepare(1)
    import onnxruntime  # noqa: PLC0415 - after `prepare`
    import pymupdf.layout  # noqa: PLC0415

    file = (Path(pymupdf.layout.__file__).parent / "resources/onnx/feature_imf1.onnx").read_bytes()
    fused = networks.fused(file)
    assert "PRelu" in operators(file)
    assert "PRelu" not in operators(fused)
    noise = np.random.default_rng(0).random((1, 1, 300, 300), dtype=np.float32)
    before, after = (onnxruntime.InferenceSession(each).run(None, {"input": noise}) for each in (file, fused))
    for name, old, new in zip(("combined", "logits"), before, after, strict=True):
        assert np.abs(old).max() > 1, name
        np.testing.assert_allclose(new, old, rtol=0, atol=1e-5, err_msg=name)


def test_what_is_loaded_is_the_other_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever makes a session from a file gets the fused network; the manifest still names the file."""
    runtime.prepare(1)
    import onnxruntime  # noqa: PLC0415 - after `prepare`

    given: list[Any] = []

    def note(_self: object, network: object, *_rest: object, **_named: object) -> None:
        given.append(network)

    session = onnxruntime.InferenceSession
    # Put back afterwards: the second `prepare` replaces it.
    monkeypatch.setattr(session, "__init__", session.__init__)
    monkeypatch.setattr(session.__init__, "unlimited", note)
    runtime.prepare(1)
    file = tmp_path / "small.onnx"
    file.write_bytes(network(struct.pack("<f", 0.25)))
    onnxruntime.InferenceSession(file)
    assert operators(given[0]) == ["LeakyRelu"]
    assert runtime.loaded_models()[-1] == file
    file.write_bytes(network(b""))
    onnxruntime.InferenceSession(file)
    assert given[1] == file, "onnxruntime names the file in what it says"


@pytest.mark.parametrize(
    ("slopes", "data_type"),
    [(struct.pack("<2f", 0.1, 0.2), FLOAT), (struct.pack("<f", 0.1), DOUBLE), (b"", FLOAT)],
    ids=["one for each channel", "another type", "none in the file"],
)
def test_other_slopes_are_left_alone(slopes: bytes, data_type: int) -> None:
    """The very same bytes: nothing is written anew for nothing."""
    file = network(slopes, data_type=data_type)
    assert networks.fused(file) is file


def test_a_slope_that_others_take_stays() -> None:
    """Only what nobody has any more is dropped."""
    alone, shared = (networks.fused(network(struct.pack("<f", 0.1), more=more)) for more in ("", "Mul"))
    assert (operators(alone), slopes_kept(alone)) == (["LeakyRelu"], [])
    assert (operators(shared), slopes_kept(shared)) == (["LeakyRelu", "Mul"], ["slope"])


@pytest.mark.parametrize("file", [b"", b"\xff\xff no network", b"%PDF-1.7"])
def test_what_is_no_network_is_left_to_onnxruntime(file: bytes) -> None:
    """Which says what is wrong with it."""
    assert networks.fused(file) is file
