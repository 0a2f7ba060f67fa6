"""Which request is which: equal ones that are sent at once, and those that are taken back."""

import asyncio
import datetime
import functools
import gc
import multiprocessing
import os
import queue
import random
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path

import certifi
import httpx
import numpy as np
import openai
import pytest

import pettingllms
from pettingllms.workflows import running

SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))
GO = [{"role": "user", "content": "go"}]


def said(found):
    return found.choices[0].message.content


async def asked(chat, text="go", model="planner"):
    found = await chat.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}]
    )
    return said(found)


async def of_tasks(client, one):
    async with client.async_openai() as chat:
        return await asyncio.gather(*(one(chat, number) for number in range(3)))


def follow_up(number, answer):
    return f"number {number} was told {answer}"


def tasks(task, client):
    """Three equal questions at once; the next ones tell who asks, and what it was told."""

    async def one(chat, number):
        answer = await asked(chat)
        return answer, await asked(chat, follow_up(number, answer))

    return asyncio.run(of_tasks(client, one))


def in_threads(client, start):
    chat = client.openai().chat.completions

    def one(number):
        answer = said(chat.create(model="planner", messages=GO))
        messages = [{"role": "user", "content": follow_up(number, answer)}]
        return answer, said(chat.create(model="planner", messages=messages))

    return start(one)


def threads(task, client):
    def start(one):
        found = {}

        def keep(number):
            with suppress(openai.APIError):  # of a run that nobody needs any more
                found[number] = one(number)

        started = [threading.Thread(target=keep, args=(number,)) for number in range(3)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return [found[number] for number in range(3)]

    return in_threads(client, start)


def pool(task, client):
    def start(one):
        with ThreadPoolExecutor(3) as executor:
            return list(executor.map(one, range(3)))

    return in_threads(client, start)


def threads_of_tasks(task, client):
    def start(one):
        async def run():
            return await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(3)))

        return asyncio.run(run())

    return in_threads(client, start)


@pytest.mark.parametrize("run", [tasks, threads, pool, threads_of_tasks])
def test_of_equal_requests_the_kth_gets_the_kth_answer(opened, run):
    """Whatever is played on from a fork, nobody gets the answer of another one."""
    outcomes = []

    def reward(task, outcome):
        outcomes.append(outcome)
        return 1.0

    env = opened(run, reward=reward)
    for seed in range(8):
        rng, played = random.Random(seed), env.fork()
        answers = {}
        while not played.terminations["planner_0"]:
            text = f"{rng.randrange(1000)}"
            answers.setdefault(played.messages("planner_0")[0]["content"], []).append(text)
            played.expect([text, "other"])
            branch = played.fork()
            branch.step("other")
            played.step(text)
        (outcome,) = [one for one in outcomes if "other" not in str(one)]
        outcomes.clear()
        assert sorted(first for first, _ in outcome) == sorted(answers["go"])
        for number, (first, second) in enumerate(outcome):
            assert answers[follow_up(number, first)] == [second]


@pytest.mark.parametrize("run", [threads, pool])
def test_a_thread_on_its_way_to_a_recorded_request_is_waited_for(opened, run, monkeypatch):
    """However slow it is, beside others that ask already."""
    env = opened(run, reward=lambda task, outcome: 1.0)
    for text in ("a", "b"):
        env.step(text)
    monkeypatch.setattr(running, "_GRACE_S", 0.02)
    kind = openai.resources.chat.completions.Completions
    create = kind.create

    def slow(self, *, messages, **options):
        time.sleep(0.5 * (messages != GO))
        return create(self, messages=messages, **options)

    monkeypatch.setattr(kind, "create", slow)
    branch = env.fork()
    branch.step("c")
    env.step("c")
    assert branch.state().calls == env.state().calls


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_equal_requests_of_forked_processes_stay_apart(opened):
    """The second process asks first when the run is repeated, and gets its own answer."""
    orders, outcomes = iter(([0, 1], [1, 0])), []
    context = multiprocessing.get_context("fork")

    def run(task, client):
        def ask(number):
            assert may_ask[number].wait(60)
            chat = client.openai().chat.completions
            pipes[number][1].send(said(chat.create(model="planner", messages=GO)))

        may_ask, pipes = [context.Event() for _ in range(2)], [context.Pipe() for _ in range(2)]
        for number in range(2):
            context.Process(target=ask, args=(number,), daemon=True).start()
        found = {}
        for number in next(orders):
            may_ask[number].set()
            found[number] = pipes[number][0].recv() if pipes[number][0].poll(60) else None
        return [found[0], found[1]]

    env = opened(run, reward=lambda task, outcome: outcomes.append(outcome) or 1.0)
    env.step("a")
    fork = env.fork()
    for one in (env, fork):
        one.step("b")
    assert outcomes == [["a", "b"]] * 2


def test_what_a_workflow_cancels_is_no_turn(opened):
    """The first of three that is told yes ends the others, before anybody is asked for them."""

    async def run(task, client):
        async with client.async_openai() as chat:
            left = {asyncio.create_task(asked(chat, f"{number}?")) for number in range(3)}
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                if "yes" in {task.result() for task in done}:
                    break
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return await asked(chat, f"{len(left)} left", "worker")

    env = opened(run, reward=lambda task, outcome: float(outcome))
    for num_no in range(3):
        played = env.fork()
        for text in ["no"] * num_no + ["yes"]:
            assert played.agent_selection == "planner_0"
            played.step(text)
        assert played.messages("worker_0")[0]["content"] == f"{2 - num_no} left"
        played.step("3")
        assert len(played.state().calls) == num_no + 2
        assert played.rewards["worker_0"] == 3.0


def test_clocks_and_chance_of_a_run_are_its_own(opened):
    before = random.getstate(), np.random.get_state()[1].tolist()

    def look():
        now = datetime.datetime.now(), datetime.datetime.now(datetime.UTC), datetime.date.today()
        read = time.time(), time.time_ns(), time.ctime(), time.strftime("%c"), time.gmtime()
        drawn = random.random(), uuid.uuid4(), os.urandom(8), np.random.rand()
        return f"{now} {read} {drawn}"

    def run(task, client):
        async def one(chat, number):
            return await asked(chat, look())

        first = said(
            client.openai().chat.completions.create(
                model="planner", messages=[{"role": "user", "content": look()}]
            )
        )
        return first, asyncio.run(of_tasks(client, one))

    env = opened(run, reward=lambda *_: 1.0, clock="2024-02-29T08:00:00+00:00")
    twin, other = opened(run, seed=3), opened(run, seed=4)
    texts = [one.messages("planner_0")[0]["content"] for one in (env, twin, other)]
    assert "datetime.date(2024, 2, 29)" in texts[0]
    assert texts[0][texts[0].index("(0.") :] == texts[1][texts[1].index("(0.") :]
    assert texts[0][texts[0].index("(0.") :] != texts[2][texts[2].index("(0.") :]
    for number in range(4):
        env.fork().step("x")
        env.step(f"{number}")
    assert env.terminations["planner_0"]
    assert datetime.datetime.now().year > 2024
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_what_a_run_does_after_its_end_is_not_done_by_the_process(tmp_path, monkeypatch):
    """A fork is dropped while its program asks; it catches that, and goes on in a new thread."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://the-user.example/v1")
    (tmp_path / "stubborn.py").write_text(SCRIPTS["stubborn"])
    table = {"roles": {"x": {}}, "tasks": {"train": ["the task"]}, "reward": "builtins:len"}
    more = {"addresses": ["http://localhost:1/v1"], "environ": {"SEEN": f"{tmp_path}/seen"}}
    source = f"{tmp_path}/stubborn.py:main"
    others = threading.enumerate()
    env = pettingllms.make(f"workflow:{source}", program={**table, **more}, checks=False)
    env.reset(seed=0)
    before = random.getstate()
    env.close()
    del env
    gc.collect()
    for thread in threading.enumerate():
        if thread not in others and thread.name == "pettingllms-workflow":
            thread.join(60)
    assert Path(tmp_path, "seen").read_text() == "(410, 410, 'the task')"
    assert random.getstate() == before


def test_a_process_ends_though_threads_of_a_run_wait_for_answers(tmp_path):
    """Whoever plays has raised, and closed nothing: clients wait for ten minutes."""
    (tmp_path / "played.py").write_text(SCRIPTS["waiting"])
    done = subprocess.run([sys.executable, "played.py"], cwd=tmp_path, timeout=120)
    assert done.returncode == 7


def test_a_thread_that_one_run_began_serves_others(opened):
    """As those of anyio do: what they run has the context of whoever sends it there."""
    work = queue.SimpleQueue()

    @functools.cache
    def begin():
        threading.Thread(
            target=lambda: [one() for one in iter(work.get, None)], daemon=True
        ).start()

    def run(task, client):
        begin()
        found = Future()
        context = copy_context()
        work.put(lambda: found.set_result(context.run(lambda: (os.urandom(4), time.time()))))
        drawn, now = found.result(60)
        said(client.openai().chat.completions.create(model="planner", messages=GO))
        return drawn.hex(), now

    outcomes = []
    for seed in (1, 2, 3, 2):
        env = opened(run, seed=seed, reward=lambda task, outcome: outcomes.append(outcome) or 1.0)
        env.step("x")
    work.put(None)
    assert outcomes[1] == outcomes[3] != outcomes[2]
    assert {now for _, now in outcomes} == {outcomes[0][1]}


def test_a_client_may_be_shared_by_event_loops(played):
    """As the default client of a framework is, by all runs: a connection belongs to one loop."""

    def run(client):
        shared, loops = client.async_openai(), [asyncio.new_event_loop() for _ in range(2)]
        try:
            return [loop.run_until_complete(asked(shared)) for loop in loops]
        finally:
            loops[0].run_until_complete(shared.close())
            for loop in loops:
                loop.close()

    assert played(run, "a", "b")[1] == ["a", "b"]


def test_a_run_that_is_over_leaves_no_connection_in_a_shared_client(opened):
    """Its loop ends with it: the next run that asks with the client would meet a closed one."""
    shared, ended, loop = httpx.AsyncClient(), [], asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def there(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    def chat(client):
        where = {"base_url": client.base_url, "api_key": client.api_key}
        return openai.AsyncOpenAI(**where, http_client=shared, max_retries=0)

    def play():
        env = opened(lambda task, client: len(there(asked(chat(client)))), tasks={"train": [1]})
        env.step("a")
        return env.rewards["planner_0"]

    def stubborn(task, client):
        for _ in range(2):
            with suppress(openai.APIError):
                asyncio.run(asked(chat(client)))
        ended.append(True)

    assert play() == 1.0
    others = threading.enumerate()
    opened(stubborn).close()
    for one in threading.enumerate():
        if one not in others and one.name == "pettingllms-workflow":
            one.join(60)
    assert ended
    assert play() == 1.0
    there(shared.aclose())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_certificates_are_read_once_for_all_runs(opened, ask, monkeypatch, tmp_path):
    """A file makes its clients anew for every run."""
    read, real = [], ssl.create_default_context
    monkeypatch.setattr(
        ssl, "create_default_context", lambda **given: read.append(given["cafile"]) or real(**given)
    )

    def run(task, client):
        httpx.Client().close()
        return ask(client)

    files = [str(tmp_path / name) for name in "ab"]
    for file in files:
        Path(file).write_bytes(Path(certifi.where()).read_bytes())
        monkeypatch.setenv("SSL_CERT_FILE", file)
        for _ in range(2):
            opened(run)
    httpx.Client().close()
    assert read == [*files, files[1]], "outside of runs as ever"


class Closes:
    """What closes itself when it is forgotten, as the clients of openai do."""

    def __del__(self):
        with suppress(RuntimeError):  # after the run
            asyncio.get_running_loop()
            self.closing = asyncio.create_task(asyncio.sleep(0))


async def numbers():
    yield 1


@pytest.mark.parametrize("kind", [numbers, Closes])
def test_the_end_of_what_was_forgotten_is_no_task_of_whoever_runs_meanwhile(opened, kind):
    """When garbage is found decides nothing, neither places of requests nor hashes of states."""
    kept = []

    async def run(task, client):
        one = kind()
        if kind is numbers:
            await anext(one)
        (kept.append if task == 5 else id)(one)
        del one
        await asyncio.sleep(0)
        async with client.async_openai() as chat:
            return await asyncio.create_task(asked(chat))

    found = [opened(run, tasks={"train": [task], "test": [6]}).state() for task in (5, 7)]
    assert [state.task for state in found] == ["5", "7"]
    assert len({state.request.place for state in found}) == 1


@pytest.mark.parametrize(("code", "told"), [(0, None), (None, None), (3, "SystemExit: 3")])
def test_a_run_that_exits_has_an_outcome_unless_it_says_that_it_has_failed(opened, ask, code, told):
    def run(task, client):
        ask(client)
        raise SystemExit(code)

    env = opened(run, reward=lambda task, outcome: float(outcome is None))
    if told is None:
        env.step("x")
        assert env.rewards["planner_0"] == 1.0
    else:
        with pytest.raises(Exception, match=told):
            env.step("x")


def test_a_failed_installation_leaves_the_process_as_it_was():
    """In a process of its own, in which no run has installed anything yet."""
    program = Path(__file__).with_name("half_installed.py")
    subprocess.run([sys.executable, str(program)], check=True, timeout=300)
