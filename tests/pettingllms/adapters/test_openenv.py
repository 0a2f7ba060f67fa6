"""A real server on the loopback interface, and its clients."""

import random
import threading
import time

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, OrderError, UnknownEnvironment

LIBRARY = "openenv"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def adapter(library):
    from pettingllms.adapters import openenv

    return openenv


@pytest.fixture
def server_url(adapter, free_port):
    """A server of Plan-Path's tool-planner team on a free port."""
    import uvicorn

    app = adapter.create_server_app("plan_path_v0", size=6, team="tool-planner", max_turns=20)
    where = {"host": "127.0.0.1", "port": free_port}
    config = uvicorn.Config(app, **where, log_level="warning", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.05)
    yield f"http://127.0.0.1:{free_port}"
    server.should_exit = True
    thread.join(timeout=300)
    assert not thread.is_alive()


def twin_of_server(seed):
    env = pettingllms.make("plan_path_v0", checks=False, size=6, team="tool-planner", max_turns=20)
    env.reset(seed=seed)
    return env


def test_an_episode_over_http_equals_the_local_one(adapter, server_url):
    twin, rng = twin_of_server(7), random.Random(0)
    with adapter.TeamClient(base_url=server_url).sync() as client:
        result = client.reset(seed=7, episode_id="mine")
        assert result.reward is None
        while not result.done:
            seen = result.observation
            assert seen.agent == twin.agent_selection
            assert seen.text == twin.observe(seen.agent)
            assert seen.messages == twin.messages(seen.agent)
            text = twin.scripted_action(seen.agent, "oracle", rng)
            twin.step(text)
            result = client.step(adapter.TeamAction(text=text, agent=seen.agent))
            assert result.observation.rewards == pytest.approx(twin.rewards)
            assert result.reward == pytest.approx(twin.rewards[seen.agent])
            assert result.observation.info["success"] == twin.infos[seen.agent]["success"]
        assert result.observation.terminated
        assert not result.observation.truncated
        state = client.state()
        assert (state.episode_id, state.seed, state.turn) == ("mine", 7, twin.turn)
        assert state.state_hash == twin.state_hash()
        assert state.agents == ["tool_0", "planner_0"]


def test_clients_have_episodes_of_their_own(adapter, server_url):
    with (
        adapter.TeamClient(base_url=server_url).sync() as one,
        adapter.TeamClient(base_url=server_url).sync() as two,
    ):
        first, second = one.reset(seed=1), two.reset(seed=2)
        assert first.observation.text != second.observation.text
        one.step(adapter.TeamAction(text="#### path(0, 0)"))
        assert two.state().step_count == 0
        assert two.reset(seed=1).observation.text == first.observation.text


def test_hostile_texts_travel(adapter, server_url):
    with adapter.TeamClient(base_url=server_url).sync() as client:
        client.reset(seed=1)
        for text in ("", "\x00\x1b[31m", "\U0001f600", "a" * 100_000, "<script>"):
            result = client.step(adapter.TeamAction(text=text))
            assert not result.observation.info["success"]
        with pytest.raises(RuntimeError, match="which acts now"):
            client.step(adapter.TeamAction(text="x", agent="nobody_0"))


def test_wrong_use_is_told(adapter):
    env = adapter.TeamEnvironment("plan_path_v0")
    with pytest.raises(OrderError, match="call reset"):
        env.step(adapter.TeamAction(text="x"))
    with pytest.raises(OrderError):
        _ = env.state
    with pytest.raises(UnknownEnvironment):
        adapter.create_server_app("no_such_v0")
    with pytest.raises(InvalidArgument, match="4 to 64"):
        adapter.create_server_app("plan_path_v0", size=2)


def test_the_script_runs(library, run_script):
    assert run_script("openenv_server.py").count("planner_0: reward") == 3
