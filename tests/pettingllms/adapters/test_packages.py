"""Packages for hubs, read back and run by the hubs' own code."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import pettingllms
from pettingllms.cli.new import HubPackage, write_hub_package
from pettingllms.files import read_lines

LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
HARNESS = Path(__file__).with_name("direct_chat.txt").read_text(encoding="utf-8")
ARGUMENTS = {"blocks": 4, "team": "proposer-planner"}
RESPONSE = {"id": "response", "created_at": 0, "model": "model", "object": "response", "output": []}
RESPONSE |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}


@pytest.fixture
def packaged(tmp_path):
    """Return a function that writes a package and returns its folder."""

    def packaged(env_id, hub, arguments, levels, first_seed):
        package = HubPackage(env_id, hub, arguments, "pettingllms==0.1.0", levels, first_seed)
        write_hub_package(package, tmp_path)
        return tmp_path / package.name

    return packaged


def local_twin(seed):
    twin = pettingllms.make("blocksworld_v0", checks=False, **ARGUMENTS)
    twin.reset(seed=seed)
    return twin


class TestHarbor:
    """Tasks, read back by Harbor's own loader."""

    LIBRARY = "harbor"

    def test_harbor_reads_the_tasks(self, packaged):
        from harbor.models.task.task import Task

        folder = packaged("queens_v0", "harbor", {"team": "single"}, 2, 3)
        for seed in (3, 4):
            path = folder / f"{folder.name}_{seed}"
            assert Task.is_valid_dir(path)
            task = Task(path)
            assert task.config.metadata["seed"] == seed
            assert task.config.verifier.timeout_sec == 300
            assert "Move queens" in task.instruction


class TestNemoGym:
    """A resources server on NeMo Gym's own base, over HTTP."""

    LIBRARY = "nemo_gym"

    @pytest.fixture
    def folder(self, packaged):
        return packaged("blocksworld_v0", "nemo-gym", ARGUMENTS, 10, 0)

    @pytest.fixture
    def post(self, folder):
        from fastapi.testclient import TestClient
        from nemo_gym.base_resources_server import BaseResourcesServerConfig
        from nemo_gym.server_utils import ServerClient

        spec = importlib.util.spec_from_file_location("packaged_server", folder / "app.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        where = {"host": "127.0.0.1", "port": 8080, "entrypoint": "app.py", "name": "x"}
        config = BaseResourcesServerConfig(**where)
        server = module.TeamServer(config=config, server_client=MagicMock(spec=ServerClient))
        client = TestClient(server.setup_webserver())

        def post(path, body):
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        return post

    @pytest.mark.parametrize("policy", ["oracle", "random"])
    def test_an_episode_is_the_local_one_and_is_judged(self, folder, post, policy):
        example = json.loads((folder / "data" / "example.jsonl").read_text().splitlines()[0])
        twin, rng = local_twin(example["seed"]), random.Random(0)
        post("/seed_session", example)
        seen = {"done": False}
        while not seen["done"]:
            text = twin.scripted_action(twin.agent_selection, policy, rng)
            seen = post("/act", {"text": text})
            twin.step(text)
            assert seen["done"] == (not twin.acting())
            if not seen["done"]:
                assert seen["agent"] == twin.agent_selection
                assert seen["observation"] == str(twin.observe(twin.agent_selection))
        verdict = post("/verify", {**example, "response": RESPONSE})
        success = bool(twin.infos["planner_0"]["success"])
        assert verdict["success"] == success == (policy == "oracle")
        assert verdict["reward"] == float(success)

    def test_the_examples_are_requests_of_nemo_gym(self, folder):
        from nemo_gym.base_resources_server import BaseRunRequest

        lines = (folder / "data" / "example.jsonl").read_text().splitlines()
        assert lines
        for line in lines:
            request = BaseRunRequest.model_validate_json(line)
            assert request.responses_create_params.tools


class TestOpenEnv:
    """A server, run as its Dockerfile does, and OpenEnv's own client."""

    LIBRARY = "openenv"

    @pytest.fixture
    def folder(self, packaged):
        return packaged("blocksworld_v0", "openenv", ARGUMENTS, 10, 0)

    @pytest.fixture
    def server_url(self, folder, free_port):
        words = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(free_port)]
        server = subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONSAFEPATH": ""})
        url = f"http://127.0.0.1:{free_port}"
        is_ready = False
        while not is_ready:
            assert server.poll() is None, "the server did not start"
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=60).close()
                is_ready = True
            time.sleep(0.1)
        yield url
        server.terminate()
        server.wait(timeout=300)

    def test_an_episode_over_http_equals_the_local_one(self, server_url):
        from pettingllms.adapters.openenv import TeamAction, TeamClient

        twin, rng = local_twin(7), random.Random(0)
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

    def test_openenv_finds_the_package_in_order(self, folder):
        """The static part of `openenv validate`; the others need its sandbox."""
        words = [sys.executable, "-m", "openenv.cli", "validate", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True)
        failed = [line for line in done.stdout.splitlines() if line.lstrip().startswith("FAIL")]
        assert not [line for line in failed if "static." in line], done.stdout + done.stderr
        assert "PASS  static.manifest" in done.stdout


class TestVerifiers:
    """A package for the Environments Hub, played by verifiers' own command."""

    LIBRARY = "verifiers"

    def test_vf_eval_plays_levels(self, packaged, tmp_path, chat_server):
        arguments = {"team": "proposer-planner", "split": "test"}
        folder = packaged("blocksworld_v0", "verifiers", arguments, 4, 9)
        (tmp_path / "direct_chat.py").write_text(HARNESS)
        program = "from verifiers.v1.cli.eval.main import main; main()"
        words = [sys.executable, "-c", program, folder.name, "-n", "2", "-m", "tiny", "--no-push"]
        words += ["--client.base-url", chat_server.url, "--no-rich"]
        for agent in ("proposer-0", "planner-0"):
            words += [f"--env.{agent}.harness.id", "direct_chat"]
        places = {"PYTHONPATH": f"{folder}:{tmp_path}", "HOME": str(tmp_path)}
        env = {**os.environ, **places, "PRIME_API_KEY": "none"}
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (file,) = tmp_path.glob("outputs/*/traces.jsonl")
        episodes = sorted(read_lines(file), key=lambda one: one["task"]["data"]["seed"])
        assert [one["task"]["data"]["seed"] for one in episodes] == [9, 10]
        for seed, episode in zip((9, 10), episodes, strict=True):
            twin = pettingllms.make("blocksworld_v0", checks=False, **arguments)
            twin.reset(seed=seed)
            returns = dict.fromkeys(twin.possible_agents, 0.0)
            while twin.acting():
                twin.step(chat_server.reply(None))
                returns = {agent: total + twin.rewards[agent] for agent, total in returns.items()}
            traces = {trace["agent"]["name"]: trace for trace in episode["traces"]}
            assert {
                name: one["rewards"]["return"]["score"] for name, one in traces.items()
            } == returns
