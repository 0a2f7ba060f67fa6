"""`hf:PATH`: a trained or downloaded model as a policy of `pettingllms eval`."""

import asyncio
import json
import shutil

import pytest
import torch

from pettingllms import policies
from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.chat import Chat, read_chat, write_chat
from pettingllms_trainers.backends.hf.local_policy import load
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.sections import LoraConfig


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


def test_precision_and_device_are_options(model_folder, capsys):
    policy = load(f"{model_folder}?precision=bfloat16&device=cpu", policies.PolicySettings())
    assert policy._model.loaded.model.dtype == torch.bfloat16
    assert "bfloat16 on cpu; unless given: temperature 1, top_p 1" in capsys.readouterr().err
    for option, allowed in (("precision=int4", "float32"), ("color=red", "precision, device")):
        with pytest.raises(InvalidArgument, match=allowed):
            load(f"{model_folder}?{option}", policies.PolicySettings())


def test_the_generation_config_is_the_default(model_folder, tmp_path, capsys):
    """As vLLM does it, so that the same weights behind a server sample alike."""
    shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)
    stored = {"temperature": 0.25, "top_k": 3, "repetition_penalty": 1.5, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(stored))
    policy = load(str(tmp_path), policies.PolicySettings())
    said = capsys.readouterr().err
    assert "temperature 0.25, top_p 1, top_k 3" in said
    assert "repetition_penalty is not used" in said
    wanted = {"temperature": 0.25, "extra": {"top_k": 3}, "max_completion_tokens": 8}
    assert sample(policy, ["one"], max_completion_tokens=8) == sample(policy, ["one"], **wanted)
    other = sample(policy, ["one"], **{**wanted, "temperature": 1.5, "extra": {"top_k": 0}})
    assert other != sample(policy, ["one"], **wanted)


@pytest.fixture
def thinking(model_folder, tmp_path):
    """A model whose chat template asks whether it thinks; its directory says yes."""
    shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)
    template = "{% if enable_thinking %}think{% else %}write{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    write_chat(tmp_path, Chat(None, {"enable_thinking": True}))
    return tmp_path


def test_arguments_of_the_template_come_with_the_directory(thinking):
    policy = TransformersPolicy.from_pretrained(thinking, engine=EngineConfig())
    prompt = policy.chat.encode([{"role": "user", "content": "one"}])
    assert policy.chat.tokenizer.decode(prompt) == "think"
    policy.save_pretrained(thinking / "again")
    assert read_chat(thinking / "again") == read_chat(thinking)


def test_arguments_of_the_template_are_options_and_sampling_fields(thinking, capsys):
    """They go over what is stored, so that one file of sampling settings serves every kind."""
    option = 'chat_template_kwargs={"enable_thinking": false}'
    writes = load(f"{thinking}?{option}", policies.PolicySettings())
    assert 'chat_template_kwargs {"enable_thinking": false}' in capsys.readouterr().err
    thinks = load(str(thinking), policies.PolicySettings())
    given = {"max_completion_tokens": 8, "extra": {"chat_template_kwargs": {}}}
    plain, other = (sample(policy, ["one"], **given) for policy in (thinks, writes))
    given["extra"] = {"chat_template_kwargs": {"enable_thinking": False}}
    assert sample(thinks, ["one"], **given) == other != plain
    for wrong in ("1", "{", '{"enable_thinkng": true}'):
        with pytest.raises(InvalidArgument, match="chat_template_kwargs"):
            load(f"{thinking}?chat_template_kwargs={wrong}", policies.PolicySettings())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("/no/such/model", "there is no such directory"),
        ("fetched:smollm2", "run: pettingllms-train fetch-model smollm2"),
        ("fetched:larger", "no 'larger' to fetch; known: smollm2"),
        ("nobody/no-model", "not on this machine, and the hub says: .*offline"),
    ],
)
def test_a_model_that_is_not_here_is_told_at_once(source, told, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    with pytest.raises(policies.PolicyUnavailable, match=told):
        load(source, policies.PolicySettings())


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
