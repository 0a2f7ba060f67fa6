"""`hf:PATH`: a trained or downloaded model as a policy of `pettingllms eval`."""

import asyncio
import json
import subprocess
import sys

import pytest
import torch

from pettingllms import policies
from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.local_policy import load
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.config.policies import LoraConfig


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    build_tiny(folder, max_length=4096)
    return folder


@pytest.fixture(scope="module")
def policy(model_folder):
    return load(str(model_folder), policies.PolicySettings())


def prompts(*texts):
    return [
        policies.Prompt(({"role": "user", "content": text},), "planner_0", seed)
        for seed, text in enumerate(texts)
    ]


def sample(policy, wanted, n=1, **sampling):
    return asyncio.run(policy.sample(prompts(*wanted), n, policies.Sampling(**sampling)))


def test_answers_have_n_completions_and_counted_tokens(policy):
    answers = sample(policy, ["one", "another prompt"], n=3, max_completion_tokens=5)
    assert [len(answer.completions) for answer in answers] == [3, 3]
    assert all(1 <= answer.usage.completion_tokens <= 15 for answer in answers)


def test_a_prompt_has_its_answer_alone_and_among_others(policy):
    alone = sample(policy, ["one"], max_completion_tokens=8)
    among = sample(policy, ["one", "two", "three"], max_completion_tokens=8)
    assert alone[0].completions == among[0].completions


def test_a_prompt_that_is_too_long_is_a_failure_of_that_prompt(policy):
    async def ask():
        wanted = policies.Sampling(max_completion_tokens=5)
        answers = [policy.sample(prompts(text), 1, wanted) for text in ("short", "long" * 2000)]
        return await asyncio.gather(*answers, return_exceptions=True)

    short, long = asyncio.run(ask())
    assert len(short[0].completions) == 1
    assert isinstance(long, policies.PolicyFailure)
    assert "at most 4096 tokens" in str(long)


def test_unknown_sampling_fields_are_told(policy):
    with pytest.raises(InvalidArgument, match="top_k"):
        sample(policy, ["one"], extra={"beam_width": 3})


def test_a_missing_model_is_told():
    with pytest.raises(policies.PolicyUnavailable, match="hf:/no/such/model"):
        load("/no/such/model", policies.PolicySettings())


def test_an_adapter_directory_is_a_policy(model_folder, policy, tmp_path):
    """A trained adapter, with the base that its configuration names."""
    base = AdapterBase.from_pretrained(str(model_folder), precision="float32", device="cpu")
    adapter = base.add("planner", LoraConfig(rank=4, alpha=256), 0)
    for name, parameter in base.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)
    adapter.save(tmp_path)
    adapted = load(str(tmp_path), policies.PolicySettings())
    answers = [sample(one, ["one"], max_completion_tokens=8) for one in (adapted, policy)]
    assert answers[0][0].completions != answers[1][0].completions
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(policies.PolicyUnavailable, match=r"adapter_model\.safetensors"):
        load(str(tmp_path), policies.PolicySettings())


def test_the_command_evaluates_a_model(model_folder, tmp_path):
    command = [sys.executable, "-m", "pettingllms.cli", "eval", "plan_path_v0"]
    command += ["--policy", f"planner=hf:{model_folder}", "--policy", "tool=oracle"]
    command += ["-n", "2", "--out", str(tmp_path / "run"), "--format", "json"]
    command += ["-s", "max_completion_tokens=8", "--env", "size=5", "--env", "tool=call"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report
