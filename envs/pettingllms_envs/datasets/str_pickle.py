"""Reading a pickle that may hold one text and nothing else.

LiveCodeBench ships its hidden tests as a pickled string. A pickle is a program, so a general
unpickler must never see a download: this one knows no classes, functions or persistent objects.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import zlib
from typing import NoReturn

MAX_DECODED_BYTES = 256 << 20
"""Largest decompressed size that is accepted: some real test files take up tens of megabytes."""


class _TextUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"refers to {module_name}.{global_name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("refers to a persistent object")


def text_from_pickle(data: bytes) -> str:
    """Return the text that a pickle holds.

    Raises:
        ValueError: The pickle is damaged, holds something else than one text, or refers to any
            class or function.
    """
    try:
        value = _TextUnpickler(io.BytesIO(data)).load()
    except (
        pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError,
        AttributeError, MemoryError, OverflowError,
    ) as error:  # what a damaged pickle raises, by the documentation of `pickle`  # fmt: skip
        raise ValueError(f"not a pickled text: {error}") from error
    if not isinstance(value, str):
        raise ValueError(f"the pickle holds a {type(value).__name__}, not a text")
    return value


def text_from_packed_pickle(packed: str) -> str:
    """Return the text in a base64-encoded, zlib-compressed pickle.

    Raises:
        ValueError: A layer is damaged, too large, or holds something else than one text.
    """
    try:
        compressed = base64.b64decode(packed, validate=True)
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(compressed, MAX_DECODED_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not base64 of a zlib stream: {error}") from error
    if decompressor.unconsumed_tail:
        raise ValueError(f"decompresses to more than {MAX_DECODED_BYTES} bytes")
    return text_from_pickle(data)
