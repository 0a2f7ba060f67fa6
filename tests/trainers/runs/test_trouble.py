"""Whatever goes wrong with a run, something is said and something is kept: a table of cases."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main

ROOT = Path(__file__).parents[3]
TABLE = tomllib.loads(Path(__file__).with_name("trouble.toml").read_text(encoding="utf-8"))
CASES = {f"{group}: {kind}": row for group, rows in TABLE.items() for kind, row in rows.items()}
SHORT = ["--trust", "--warm-start.num-steps=2", "--warm-start.num-episodes=4"]
SHORT += ["--logging.progress=plain", "--evaluation.num-episodes=12", "--evaluation.every=0"]
GAME = "from pettingllms_envs.plan_path import PlanPathEnv\nclass Game(PlanPathEnv):\n    "


def spoilt(directory, how):
    """Change a model's directory so that something is wrong with it."""
    if how == "no template":
        (directory / "chat_template.jinja").unlink()
    elif how == "encoder-decoder":
        (directory / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    elif how == "cut short":
        with (directory / "model.safetensors").open("r+b") as file:
            file.truncate(2000)
    elif how == "a missing tensor":
        weights = load_file(directory / "model.safetensors")
        weights.pop("model.norm.weight")
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    else:
        path = directory / "tokenizer_config.json"
        settings = json.loads(path.read_text())
        del settings["eos_token"]
        path.write_text(json.dumps(settings))


def flags_of(case, place):
    """The flags that cause a case."""
    flags = list(case.get("flags", ()))
    name = f"own_{place.name}"  # modules have one name in a process
    if "game" in case:
        (place / f"{name}.py").write_text(
            GAME + case["game"].strip().replace("\n", "\n    ") + "\n"
        )
        flags.append(f"--env.id={place / name}.py:Game")
    if "reward" in case:
        (place / f"{name}.py").write_text(f"def score(messages, answer):\n    {case['reward']}\n")
        flags.append(f"--rewards.r.function={place / name}.py:score")
    if "model" in case or "template" in case:
        model = build_tiny(place / "model", hidden_size=16, num_layers=1, num_heads=2)
        if "template" in case:
            (model / "chat_template.jinja").write_text(case["template"])
        else:
            spoilt(model, case["model"])
        flags.append(f"--policies.p.model={model}")
    return flags


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "test" not in case])
def test_it_is_said_and_what_is_kept_is_kept(name, small_run_file, tmp_path, capsys):
    case, out = CASES[name], tmp_path / "run"
    code = main([str(small_run_file(1)), f"--output-dir={out}", *SHORT, *flags_of(case, tmp_path)])
    captured = capsys.readouterr()
    said, goes_on = (
        " ".join((captured.out + captured.err).split()),
        case["kept"] == "everything",
    )
    assert code == 0 if goes_on else code in (1, 2)
    assert "Traceback" not in said
    for part in case["said"].split("…"):
        assert part.strip() in said, said
    assert (out / "eval.json").exists() == goes_on
    assert goes_on or not (out / "policies").exists()


@cache
def product_text():
    """The text of the product, where literals that follow each other are one."""
    files = [*ROOT.glob("pettingllms/**/*.py"), *ROOT.glob("trainers/**/*.py")]
    return re.sub(r'"\s*f?"', "", "".join(path.read_text(encoding="utf-8") for path in files))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "test" in case])
def test_what_another_test_causes_is_said_by_the_product(name):
    case = CASES[name]
    path, _, function = case["test"].partition("::")
    assert f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")
    for part in case["said"].split("…"):
        assert part.strip() in product_text(), part
