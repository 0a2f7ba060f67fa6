"""Endpoints: what is sent, what is read, and every way in which a server can fail."""

import asyncio
from urllib.parse import urlsplit

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.policies import (
    Completion,
    PolicyFailure,
    PolicySettings,
    PolicyUnavailable,
    Prompt,
    Sampling,
    Usage,
    acted,
    load_policy,
)


def error_body(message, code=None):
    return {"error": {"message": message, "type": "error", "code": code}}


def settings(**changes):
    return PolicySettings(**{"max_retries": 2, "timeout_s": 10.0, **changes})


def checked(policy):
    async def run():
        try:
            await policy.check(None)
        finally:
            await policy.aclose()

    asyncio.run(run())


def test_sends_the_chat_and_the_sampling_and_reads_text_and_usage(chat_server, asked):
    chat_server.reply = lambda body: body["messages"][0]["content"].upper()
    chat_server.finish_reason = "length"
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        max_completion_tokens=32,
        stop=("END",),
        extra={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    )
    answer = asked(sampling=sampling)
    assert answer.completions == (Completion("HELLO", "length", model="tiny"),)
    assert answer.usage == Usage(1, 0, 100, 7)
    assert chat_server.requests == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 32,
            "stop": ["END"],
            "seed": 5,
            "top_k": 20,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_sends_nothing_that_was_not_asked_for(chat_server, asked):
    asked(sampling=Sampling(seeded=False))
    assert set(chat_server.requests[0]) == {"model", "messages"}


@pytest.fixture
def asked(chat_server):
    """Return a function that asks the server once, with some settings."""

    def asked(n=1, sampling=None, name=None, **changes):
        async def run():
            policy = load_policy(name or chat_server.policy, settings(**changes))
            prompt = Prompt([{"role": "user", "content": "hello"}], "planner_0", 5)
            try:
                return (await policy.sample([prompt], n, sampling or Sampling()))[0]
            finally:
                await policy.aclose()

        return asyncio.run(run())

    return asked


OF_OPENAI = {
    "OPENAI_API_KEY": "secret-key",
    "OPENAI_ADMIN_KEY": "secret-admin",
    "OPENAI_ORG_ID": "secret-org",
    "OPENAI_PROJECT_ID": "secret-project",
    "OPENAI_CUSTOM_HEADERS": "X-Gateway: secret-gateway",
}
"""What a user has set for OpenAI, or for the server of OPENAI_BASE_URL."""


@pytest.fixture
def secrets(monkeypatch):
    for name, value in OF_OPENAI.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def sent(server):
    (headers,) = server.headers
    return " ".join(headers.values())


def test_a_server_that_is_not_the_users_own_gets_nothing_of_openais(chat_server, asked, secrets):
    checked(load_policy(chat_server.policy, settings()))
    chat_server.script = ["ok", (404, {}, error_body("no such model"))]
    asked()
    with pytest.raises(PolicyUnavailable, match="no such model"):
        asked()
    assert chat_server.model_headers, "the list of models is asked for, too"
    assert "secret" not in str([*chat_server.headers, *chat_server.model_headers])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:{port}"])
def test_a_server_gets_the_key_that_is_named_for_it_alone(
    chat_server, asked, secrets, monkeypatch, host
):
    monkeypatch.setenv("MY_KEY", "mine-1")
    keys = {host.format(port=urlsplit(chat_server.url).port): "MY_KEY", "127.0.0.2": "OTHER"}
    asked(api_keys=keys)
    assert chat_server.headers[0]["authorization"] == "Bearer mine-1"
    assert "secret" not in sent(chat_server)


def test_a_key_that_is_named_and_not_set_is_an_error(chat_server):
    with pytest.raises(
        PolicyUnavailable, match=r"variable NO_KEY is not set.*127\.0\.0\.1=VARIABLE"
    ):
        load_policy(chat_server.policy, settings(api_keys={"127.0.0.1": "NO_KEY"}))


@pytest.mark.parametrize("name", ["openai:tiny", "openai:tiny@{url}"])
def test_the_base_url_of_the_environment_gets_the_key(
    chat_server, asked, secrets, monkeypatch, name
):
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    assert asked(name=name.format(url=chat_server.url)).completions[0].text == "#### []"
    assert {"secret-key", "secret-gateway"} <= set(sent(chat_server).replace("Bearer ", "").split())


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.OpenAI.com:443/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://evil.example/api.openai.com/v1", False),
        ("https://evil.example/v1?https://api.openai.com", False),
    ],
)
def test_only_openais_own_address_is_openai(secrets, url, is_own):
    policy = load_policy(f"openai:tiny@{url}", settings())
    assert (policy._client.api_key == "secret-key") is is_own
    assert ("secret" in str(policy._client.default_headers)) is is_own


@pytest.mark.parametrize(("honours_n", "num_requests"), [(True, 1), (False, 4)])
def test_n_completions_from_servers_that_honour_n_and_others(
    chat_server, asked, honours_n, num_requests
):
    chat_server.honours_n = honours_n
    answer = asked(4)
    assert len(answer.completions) == 4
    assert answer.usage == Usage(num_requests, 0, 100 * num_requests, 28)
    seeds = [request["seed"] for request in chat_server.requests]
    assert len(set(seeds)) == num_requests, "equal seeds would give equal completions"


def test_a_completion_without_text_is_an_outcome(chat_server, asked):
    chat_server.script = ["no text"]
    (completion,) = asked().completions
    assert (completion.text, completion.finish_reason) == ("", "stop")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_and_the_served_model_are_kept(chat_server, asked, name):
    chat_server.message = {name: "think, think"}
    chat_server.served = "tiny-2026-11-01"
    (completion,) = asked().completions
    assert completion == Completion("#### []", "stop", "think, think", "tiny-2026-11-01")


def test_cached_and_reasoning_tokens_are_counted_as_parts_of_the_others(chat_server, asked):
    counts = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    details = {"prompt_tokens_details": {"cached_tokens": 64}}
    details["completion_tokens_details"] = {"reasoning_tokens": 9}
    chat_server.usage = lambda count: counts | details
    usage = asked().usage
    assert usage == Usage(1, 0, 100, 7, cached_tokens=64, reasoning_tokens=7), "at most all"
    assert acted(Completion("x", "stop"), usage).tokens == (100, 7, 64, 7)
    chat_server.usage = lambda count: counts | {"prompt_tokens_details": {"cached_tokens": None}}
    assert asked().usage == Usage(1, 0, 100, 7)


def test_answers_that_cannot_be_read_are_on_the_bill(chat_server, asked):
    chat_server.script = ["no choices"]
    answer = asked()
    assert answer.usage == Usage(2, 1, 200, 14)
    chat_server.then = "no choices"
    with pytest.raises(PolicyFailure) as caught:
        asked(max_retries=0)
    assert caught.value.usage == Usage(1, 0, 100, 7)


def test_answers_before_a_failure_are_on_the_bill(chat_server, asked):
    chat_server.honours_n = False
    chat_server.script = ["ok"]
    chat_server.then = (400, {}, error_body("context too long"))
    with pytest.raises(PolicyFailure) as caught:
        asked(3)
    assert caught.value.usage == Usage(1, 0, 100, 7)


def test_a_dropped_connection_of_a_server_that_has_answered_fails_one_prompt(chat_server, asked):
    policy = load_policy(chat_server.policy, settings(max_retries=0))

    async def run():
        prompt = Prompt([{"role": "user", "content": "hello"}], "planner_0", 5)
        await policy.check(None)
        chat_server.script = ["drop"]
        with pytest.raises(PolicyFailure, match="dropped the connection") as caught:
            await policy.sample([prompt], 1, Sampling())
        assert not isinstance(caught.value, PolicyUnavailable)
        await policy.aclose()

    asyncio.run(run())
    chat_server.script = ["drop"]
    with pytest.raises(PolicyUnavailable, match="cannot be reached"):
        asked(max_retries=0)


@pytest.mark.parametrize(
    "models", [["tiny"], None, (500, {}, "boom"), (200, {}, "not json"), (200, {}, "null")]
)
def test_a_server_passes_the_check_with_or_without_a_list_of_models(chat_server, models):
    chat_server.models = models
    checked(load_policy(chat_server.policy, settings()))


def test_openai_itself_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(PolicyUnavailable, match="OPENAI_API_KEY is not set"):
        load_policy("openai:gpt@20250807")


@pytest.mark.parametrize(
    ("limit", "allowed"),
    # A request for at most 99 tokens, and one of its prompt.
    [
        ({"requests_per_minute": 3}, 3),
        ({"requests_per_minute": 0.5}, 1),
        ({"tokens_per_minute": 250}, 2),
    ],
)
def test_no_more_a_minute_than_allowed(chat_server, limit, allowed):
    async def run():
        policy = load_policy(chat_server.policy, settings(**limit))
        sampling = Sampling(max_completion_tokens=99)
        prompts = [Prompt([{"role": "user", "content": "four"}], "a_0", i) for i in range(5)]
        tasks = [asyncio.create_task(policy.sample([prompt], 1, sampling)) for prompt in prompts]
        await asyncio.gather(*tasks[:allowed])
        assert len(chat_server.requests) == allowed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await policy.aclose()

    asyncio.run(run())


def test_prompts_are_answered_in_order(chat_server):
    chat_server.reply = lambda body: body["messages"][0]["content"]

    async def run():
        policy = load_policy(chat_server.policy, settings(max_concurrency=3))
        prompts = [Prompt([{"role": "user", "content": str(i)}], "a_0", i) for i in range(20)]
        answers = await policy.sample(prompts, 1, Sampling())
        await policy.aclose()
        return [answer.completions[0].text for answer in answers]

    assert asyncio.run(run()) == [str(i) for i in range(20)]


def test_an_unknown_model_is_told_with_those_that_exist(chat_server, asked):
    chat_server.models = ["qwen3:4b", "qwen3:8b"]
    chat_server.then = (404, {}, error_body("model 'qwen3:4' not found"))
    with pytest.raises(PolicyUnavailable, match=r'did you mean "qwen3:4b".*qwen3:4b, qwen3:8b'):
        asked(name=f"openai:qwen3:4@{chat_server.url}")


@pytest.mark.parametrize(
    "name",
    ["openai:", *map("openai:a@{}".format, ("http://x@http://y", "localhost", "h:80", "h/v1"))],
)
def test_ill_formed_names_are_refused(name):
    with pytest.raises(InvalidArgument, match="MODEL@URL"):
        load_policy(name)


@pytest.mark.parametrize("host", ["api.openai.com\\.evil.example", "①27.0.0.1", "a b", "user@host"])
def test_an_address_that_clients_read_differently_is_refused(secrets, host, monkeypatch):
    with pytest.raises(InvalidArgument, match="MODEL@URL"):
        load_policy(f"openai:tiny@http://{host}/v1", settings())
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{host}/v1")
    with pytest.raises(InvalidArgument, match=r"HOST\[:PORT\]"):
        load_policy("openai:tiny", settings())
