"""Network files as onnxruntime runs them fastest: the same function, written with other operators.

Engine. onnxruntime folds some activations into the convolution before them; a PRelu is none of these, so that it is
run by itself, one value after the other, and the convolutions around it must put their data into another order each
time. With one slope for all channels it is a LeakyRelu, which is folded. Files are read as protocol buffers of which
only the fields named here are known; what else they hold goes through as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_Field = descriptor_pb2.FieldDescriptorProto
#: Of each message the fields that are read or written: name, number, type, and whether there are many. From onnx.proto.
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "Model": (("graph", 7, "Graph", False),),
    "Graph": (("node", 1, "Node", True), ("initializer", 5, "Tensor", True)),
    "Node": (
        ("input", 1, _Field.TYPE_STRING, True),
        ("op_type", 4, _Field.TYPE_STRING, False),
        ("attribute", 5, "Attribute", True),
        ("domain", 7, _Field.TYPE_STRING, False),
    ),
    "Attribute": (
        ("name", 1, _Field.TYPE_STRING, False),
        ("f", 2, _Field.TYPE_FLOAT, False),
        ("type", 20, _Field.TYPE_INT32, False),
    ),
    "Tensor": (
        ("data_type", 2, _Field.TYPE_INT32, False),
        ("name", 8, _Field.TYPE_STRING, False),
        ("raw_data", 9, _Field.TYPE_BYTES, False),
    ),
}
#: TensorProto.DataType and AttributeProto.AttributeType give it the same number.
_FLOAT = 1
_SLOPE = struct.Struct("<f")


def fused(file: bytes) -> bytes:
    """The network of an ONNX file with every PRelu of a single slope as a LeakyRelu; `file` itself if it has none.

    What is no network goes back as it came: onnxruntime says what is wrong with it.
    """
    network = _model()()
    try:
        network.ParseFromString(file)
    except DecodeError:
        return file
    slopes = {
        each.name: _SLOPE.unpack(each.raw_data)[0]
        for each in network.graph.initializer
        if each.data_type == _FLOAT and len(each.raw_data) == _SLOPE.size
    }
    found = [
        node for node in network.graph.node if node.op_type == "PRelu" and not node.domain and node.input[1] in slopes
    ]
    if not found:
        return file
    for node in found:
        node.op_type = "LeakyRelu"
        node.attribute.add(name="alpha", type=_FLOAT, f=slopes[node.input.pop()])
    _drop(network.graph, slopes.keys())
    return bytes(network.SerializeToString())


def _drop(graph: Any, names: Collection[str]) -> None:
    """Take out those of the named initializers that no node has; onnxruntime would warn of each."""
    unused = set(names).difference(name for node in graph.node for name in node.input)
    kept = [each for each in graph.initializer if each.name not in unused]
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
