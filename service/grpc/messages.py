"""The protocol's messages, in a pool of their own.

In the default pool they would collide with those of a client library in the same process, which
have the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_COMPILED = Path(__file__).parent / "open_inference.binpb"
_PACKAGE = "inference"
SERVICE = f"{_PACKAGE}.GRPCInferenceService"

_files = descriptor_pb2.FileDescriptorSet.FromString(_COMPILED.read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def methods() -> dict[str, tuple[Any, Any]]:
    """The service's methods: request and response of each."""
    described = _pool.FindServiceByName(SERVICE)
    return {
        method.name: (
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for method in described.methods
    }
