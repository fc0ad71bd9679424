"""Network files as onnxruntime runs them fastest: the same function, written with other operators.

Engine. onnxruntime hands what it knows from one convolution to the next in blocks, and folds some activations into
them. A PRelu is run by itself, one value after the other, and outside the blocks; with one slope for all channels it is
a LeakyRelu, which is folded. A linear Resize to a size is outside too, and one by a whole factor is not. Files are read
as protocol buffers of which only the fields named here are known; what else they hold goes through as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_Field = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _FLOATING = _Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_FLOAT
_INT32, _INT64 = _Field.TYPE_INT32, _Field.TYPE_INT64
#: Of each message the fields that are read or written: name, number, type, and whether there are many. From onnx.proto.
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "Model": (("graph", 7, "Graph", False),),
    "Graph": (
        ("node", 1, "Node", True),
        ("initializer", 5, "Tensor", True),
        ("output", 12, "Value", True),
        ("value_info", 13, "Value", True),
    ),
    "Node": (
        ("input", 1, _STRING, True),
        ("output", 2, _STRING, True),
        ("op_type", 4, _STRING, False),
        ("attribute", 5, "Attribute", True),
        ("domain", 7, _STRING, False),
    ),
    "Attribute": (
        ("name", 1, _STRING, False),
        ("f", 2, _FLOATING, False),
        ("s", 4, _BYTES, False),
        ("type", 20, _INT32, False),
    ),
    "Tensor": (
        ("dims", 1, _INT64, True),
        ("data_type", 2, _INT32, False),
        ("name", 8, _STRING, False),
        ("raw_data", 9, _BYTES, False),
    ),
    "Value": (("name", 1, _STRING, False), ("type", 2, "Type", False)),
    "Type": (("tensor_type", 1, "TensorType", False),),
    "TensorType": (("shape", 2, "Shape", False),),
    "Shape": (("dim", 1, "Dimension", True),),
    "Dimension": (("dim_value", 1, _INT64, False),),
}
#: TensorProto.DataType and AttributeProto.AttributeType give it the same number.
_FLOAT = 1
_SLOPE = struct.Struct("<f")
#: Of the inputs of a Resize: region of interest, scales and sizes follow.
_SIZES = 3
#: Shapes are (batch, channels, height, width).
_SCALES = struct.Struct("<4f")


def fused(file: bytes) -> bytes:
    """The network of an ONNX file, written so that it runs faster; `file` itself where nothing can be.

    What is no network goes back as it came: onnxruntime says what is wrong with it.
    """
    network = _model()()
    try:
        network.ParseFromString(file)
    except DecodeError:
        return file
    found = _fold_prelus(network.graph) + _scale_resizes(network.graph)
    if not found:
        return file
    _prune(network.graph)
    return bytes(network.SerializeToString())


def _fold_prelus(graph: Any) -> int:
    """Write each PRelu of one slope as a LeakyRelu; returns how many."""
    slopes = {
        each.name: _SLOPE.unpack(each.raw_data)[0]
        for each in graph.initializer
        if each.data_type == _FLOAT and len(each.raw_data) == _SLOPE.size
    }
    found = [node for node in _nodes(graph, "PRelu") if node.input[1] in slopes]
    for node in found:
        node.op_type = "LeakyRelu"
        node.attribute.add(name="alpha", type=_FLOAT, f=slopes[node.input.pop()])
    return len(found)


def _scale_resizes(graph: Any) -> int:
    """Give each linear Resize whose size is a whole multiple that multiple instead; returns how many."""
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in graph.value_info}
    found = 0
    for node in _nodes(graph, "Resize"):
        said = {each.name: each for each in node.attribute}
        times = _times(shapes, node.input[0], node.output[0])
        if len(node.input) <= _SIZES or times is None or not _is_linear(said):
            continue
        scales = graph.initializer.add(name=f"{node.output[0]}_scales", data_type=_FLOAT, dims=[4])
        scales.raw_data = _SCALES.pack(1, 1, *times)
        del node.input[_SIZES - 1 :]
        node.input.append(scales.name)
        # The same where more than one value comes out, and the only one of the two names that the blocks know.
        said["coordinate_transformation_mode"].s = b"half_pixel"
        found += 1
    return found


def _is_linear(said: Mapping[str, Any]) -> bool:
    wanted = {"mode": b"linear", "coordinate_transformation_mode": b"pytorch_half_pixel"}
    return all(name in said and said[name].s == value for name, value in wanted.items())


def _times(shapes: Mapping[str, Sequence[int]], source: str, target: str) -> tuple[int, int] | None:
    """By what a picture's height and width grow, where both are known and grow by whole numbers."""
    before, after = shapes.get(source, ())[2:], shapes.get(target, ())[2:]
    if len(before) != len(after) or len(after) != len("hw") or not all(before):
        return None
    if any(large <= small or large % small for small, large in zip(before, after, strict=True)):
        return None
    return after[0] // before[0], after[1] // before[1]


def _nodes(graph: Any, operator: str) -> Iterator[Any]:
    return (node for node in graph.node if node.op_type == operator and not node.domain)


def _prune(graph: Any) -> None:
    """Take out what leads to nothing any more; onnxruntime would warn of each initializer."""
    ends = {each.name for each in graph.output}
    while True:
        used = ends.union(*(node.input for node in graph.node))
        alive = [node for node in graph.node if not used.isdisjoint(node.output)]
        if len(alive) == len(graph.node):
            break
        del graph.node[:]
        graph.node.extend(alive)
    kept = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


@cache
def _model() -> Any:
    """The class of a whole file."""
    schema = descriptor_pb2.FileDescriptorProto(name="bulkhead/network.proto", package="bulkhead", syntax="proto2")
    for message, fields in _MESSAGES.items():
        made = schema.message_type.add(name=message)
        for name, number, kind, many in fields:
            field = made.field.add(
                name=name, number=number, label=_Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".bulkhead.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bulkhead.Model"))
