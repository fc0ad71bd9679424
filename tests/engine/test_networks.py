"""Networks that are written with other operators before they are loaded: the same function, nothing else touched."""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
    made.graph.node.add(op_type="PRelu", input=["x", "slope"], output=["y"])
    if more:
        made.graph.node.add(op_type=more, input=["y", "slope"], output=["z"])
    made.graph.initializer.add(name="slope", data_type=data_type, raw_data=slopes)
    made.graph.output.add(name="z" if more else "y")
    return bytes(made.SerializeToString())


def resize(
    before: Sequence[int], after: Sequence[int], *, mode: bytes = b"linear", centre: bytes = b"pytorch_half_pixel"
) -> bytes:
    """A file with one Resize to the sizes that a Concat makes, between pictures of these shapes (none: unknown)."""
    made: Any = networks._model()()
    made.graph.node.add(op_type="Concat", input=["head", "tail"], output=["sizes"])
    node = made.graph.node.add(op_type="Resize", input=["x", "", "", "sizes"], output=["y"])
    node.attribute.add(name="mode", s=mode)
    node.attribute.add(name="coordinate_transformation_mode", s=centre)
    made.graph.initializer.add(name="tail", data_type=FLOAT)
    made.graph.output.add(name="y")
    for name, shape in (("x", before), ("y", after)):
        value = made.graph.value_info.add(name=name)
        for size in shape:
            value.type.tensor_type.shape.dim.add(dim_value=size)
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
    assert {"PRelu", "Shape"} < set(operators(file))
    assert "PRelu" not in operators(fused)
    assert operators(fused).count("Shape") < operators(file).count("Shape")
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


def test_operators_of_others_are_left_alone() -> None:
    """A PRelu of another domain is another function, and a Resize that has its scales needs none."""
    made: Any = networks._model()()
    made.ParseFromString(network(struct.pack("<f", 0.1)))
    made.graph.node[0].domain = "com.example"
    foreign = bytes(made.SerializeToString())
    assert networks.fused(foreign) is foreign
    made.ParseFromString(resize((1, 32, 75, 75), (1, 32, 150, 150)))
    made.graph.node[1].input.pop()
    scaled = bytes(made.SerializeToString())
    assert networks.fused(scaled) is scaled


def test_a_slope_that_others_take_stays() -> None:
    """Only what nobody has any more is dropped."""
    alone, shared = (networks.fused(network(struct.pack("<f", 0.1), more=more)) for more in ("", "Mul"))
    assert (operators(alone), slopes_kept(alone)) == (["LeakyRelu"], [])
    assert (operators(shared), slopes_kept(shared)) == (["LeakyRelu", "Mul"], ["slope"])


def test_a_resize_to_a_multiple_says_by_what() -> None:
    """What computed its sizes is gone with them."""
    made: Any = networks._model()()
    made.ParseFromString(networks.fused(resize((0, 32, 75, 60), (0, 32, 150, 180))))
    (node,), (scales,) = made.graph.node, made.graph.initializer
    assert list(node.input) == ["x", "", scales.name]
    assert struct.unpack("<4f", scales.raw_data) == (1, 1, 2, 3)
    assert list(scales.dims) == [4]
    assert {each.name: each.s for each in node.attribute}["coordinate_transformation_mode"] == b"half_pixel"


@pytest.mark.parametrize(
    "file",
    [
        resize((1, 32, 37, 37), (1, 32, 75, 75)),
        resize((1, 32, 37, 37), (1, 32, 74, 75)),
        resize((1, 32, 75, 75), (1, 32, 75, 75)),
        resize((1, 32, 0, 0), (1, 32, 150, 150)),
        resize((), (1, 32, 150, 150)),
        resize((1, 32, 75), (1, 32, 150)),
        resize((1, 32, 75, 75), (1, 32, 150, 150), mode=b"nearest"),
        resize((1, 32, 75, 75), (1, 32, 150, 150), centre=b"align_corners"),
    ],
    ids=[
        "no multiple",
        "no multiple across",
        "as large",
        "size unknown",
        "shape unknown",
        "no picture",
        "nearest",
        "corners",
    ],
)
def test_other_resizes_are_left_alone(file: bytes) -> None:
    """The very same bytes."""
    assert networks.fused(file) is file


@pytest.mark.parametrize("file", [b"", b"\xff\xff no network", b"%PDF-1.7"])
def test_what_is_no_network_is_left_to_onnxruntime(file: bytes) -> None:
    """Which says what is wrong with it."""
    assert networks.fused(file) is file
