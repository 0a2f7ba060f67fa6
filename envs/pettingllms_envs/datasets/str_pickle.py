"""Reading a pickle that may hold one text and nothing else.

LiveCodeBench ships its hidden tests as a pickled string. A pickle is a program, which no machine
here runs: its instructions are read as data, and only those that write down a text are known. So
nothing is called, and nothing is allocated but the text (28 characters can ask an unpickler for a
memo of 4 GiB).
"""

from __future__ import annotations

import base64
import binascii
import pickletools
import zlib

MAX_DECODED_BYTES = 256 << 20
"""Largest decompressed size that is accepted: some real test files take up tens of megabytes."""

_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}


def text_from_pickle(data: bytes) -> str:
    """The text that a pickle holds.

    Raises:
        ValueError: The pickle is damaged, or holds something else than one text.
    """
    texts: list[str] = []
    try:
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name in _TEXTS:
                texts.append(str(argument))
            if instruction.name not in _TEXTS | _AROUND or len(texts) > 1:
                raise ValueError(f"it is not one text, but has {instruction.name}")
    # What `genops` raises of damaged data: the length of a text may be any number.
    except (ValueError, OverflowError) as error:
        raise ValueError(f"not a pickled text: {error}") from error
    if not texts:
        raise ValueError("not a pickled text: it is empty")
    return texts[0]


def text_from_packed_pickle(packed: str) -> str:
    """The text in a base64-encoded, zlib-compressed pickle.

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
