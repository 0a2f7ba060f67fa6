"""A package for OpenEnv: its server, run as its Dockerfile does, and OpenEnv's own client."""

import os
import random
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import pettingllms
from pettingllms.cli.package import Parcel, write_parcel

LIBRARY = "openenv"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

ARGUMENTS = {"blocks": 4, "team": "proposer-planner"}


@pytest.fixture
def folder(library, tmp_path):
    parcel = Parcel("blocksworld_v0", "openenv", ARGUMENTS, "pettingllms==0.1.0", 10, 0)
    write_parcel(parcel, tmp_path)
    return tmp_path / parcel.name


@pytest.fixture
def server_url(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    server = subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONSAFEPATH": ""})
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        assert server.poll() is None, "the server did not start"
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield url
    server.terminate()
    server.wait(timeout=300)


def test_an_episode_over_http_equals_the_local_one(server_url):
    from pettingllms.adapters.openenv import TeamAction, TeamClient

    twin, rng = pettingllms.make("blocksworld_v0", checks=False, **ARGUMENTS), random.Random(0)
    twin.reset(seed=7)
    with TeamClient(base_url=server_url).sync() as client:
        result = client.reset(seed=7)
        while not result.done:
            agent = twin.agent_selection
            assert result.observation.agent == agent
            assert result.observation.text == str(twin.observe(agent))
            text = twin.scripted_action(agent, "oracle", rng)
            twin.step(text)
            result = client.step(TeamAction(text=text))
            assert result.reward == twin.rewards[agent]
    assert result.observation.terminated
    assert result.observation.info["success"]


def test_openenv_finds_the_package_in_order(folder):
    """The static part of `openenv validate`; the others need its sandbox."""
    words = [sys.executable, "-m", "openenv.cli", "validate", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    failed = [line for line in done.stdout.splitlines() if line.lstrip().startswith("FAIL")]
    assert not [line for line in failed if "static." in line], done.stdout + done.stderr
    assert "PASS  static.manifest" in done.stdout
