"""Real episodes of verifiers: its agents, its interception, a server on the loopback interface.

Only the model behind the server is scripted. The harness runs in this process, as verifiers allows,
because its own chat program is installed from a package index at run time.
"""

import asyncio
import os
import re
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, UnknownEnvironment

LIBRARY = "verifiers"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

HARNESS = Path(__file__).with_name("direct_chat.txt").read_text(encoding="utf-8")
TEAM = """
from pettingllms.adapters.verifiers import build
Tasks, Team = build("guess_v0", num_tasks=3, first_seed=5)
__all__ = ["Tasks", "Team"]
"""


def number(body):
    """The number that a conversation mentions last; the model "mute" says nothing useful."""
    numbers = re.findall(r"[1-9][0-9]*", " ".join(m["content"] for m in body["messages"][:2]))
    return "no" if body["model"] == "mute" else f" {numbers[0] if numbers else 0}\n"


@pytest.fixture
def model_server(chat_server):
    chat_server.reply = number
    return chat_server


@pytest.fixture
def team_module(library, guess_id, tmp_path, monkeypatch):
    (tmp_path / "direct_chat.py").write_text(HARNESS)
    (tmp_path / "guess_team.py").write_text(TEAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return "guess_team"


def play_levels(server, **seats):
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import env_config_type, load_environment

    direct = {"harness": {"id": "direct_chat"}}
    agents = {name: {**direct, **seats.get(name, {})} for name in ("teller_0", "guesser_0")}
    config = env_config_type("guess_team")(
        taskset={"id": "guess_team"}, interception={"type": "server"}, **agents
    )
    env = load_environment(config)
    client = vf.EvalClientConfig(base_url=server.url, api_key_var="NO_SUCH_KEY")

    async def play():
        context = vf.ModelContext(model="clever", client=client)
        async with env.serving():
            return [await env.run_episode(task, context) for task in env.taskset]

    return asyncio.run(play())


def test_a_team_solves_levels(team_module, model_server):
    episodes = play_levels(model_server)
    assert [episode.task.data.seed for episode in episodes] == [5, 6, 7]
    twin = pettingllms.make("guess_v0", checks=False)
    for episode in episodes:
        assert episode.ok, episode.errors
        twin.reset(seed=episode.task.data.seed)
        traces = {trace.agent.name: trace for trace in episode.traces}
        assert set(traces) == {"teller_0", "guesser_0"}
        assert traces["teller_0"].rewards["return"].score == 1.5
        assert traces["guesser_0"].rewards["return"].score == 1.0
        assert traces["guesser_0"].metrics["success"] == 1.0
        told = traces["teller_0"].branches[-1].messages
        assert told[0].content == f"Hint at {twin.state().secret}. A brace: {{}}."
        assert told[-1].content.strip() == str(twin.state().secret)


def test_each_agent_has_a_model_of_its_own(team_module, model_server):
    (episode, *_) = play_levels(model_server, teller_0={"model": "mute"})
    assert episode.ok, episode.errors
    traces = {trace.agent.name: trace for trace in episode.traces}
    assert traces["teller_0"].rewards["return"].score == -0.75, "three turns, three penalties"
    assert traces["guesser_0"].metrics["success"] == 0.0
    assert {body["model"] for body in model_server.requests} == {"clever", "mute"}
    last = [b for b in model_server.requests if b["model"] == "mute"][2]
    contents = [message["content"] for message in last["messages"]]
    assert len(contents) == 6, "system, and three turns of which the last is open"
    assert contents[3].startswith("Now "), "only what is new"


def test_an_agent_at_its_limit_falls_silent(team_module, model_server):
    episodes = play_levels(
        model_server, teller_0={"model": "mute", "max_turns": 1}, guesser_0={"model": "mute"}
    )
    for episode in episodes:
        assert episode.ok, episode.errors
        traces = {trace.agent.name: trace for trace in episode.traces}
        assert traces["teller_0"].num_turns == 1
        assert traces["teller_0"].rewards["return"].score == -0.75
        assert traces["guesser_0"].num_turns == 3


def test_wrong_use_is_told(library, guess_id):
    from pettingllms.adapters.verifiers import build

    with pytest.raises(InvalidArgument, match="num_tasks"):
        build("guess_v0", num_tasks=0)
    with pytest.raises(UnknownEnvironment):
        build("no_such_v0")
    with pytest.raises(InvalidArgument, match="max_turns"):
        build("guess_v0", max_turns=0)


def test_the_script_runs(library, run_script, model_server, tmp_path):
    (tmp_path / "direct_chat.py").write_text(HARNESS)
    said = run_script(
        *("verifiers_team.py", model_server.url, "clever", "direct_chat"),
        PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
        HOME=str(tmp_path),
        OPENAI_API_KEY="none",
    )
    assert said.count("'planner_0':") == 3
