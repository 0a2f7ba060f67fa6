"""A package for NeMo Gym: its resources server on NeMo Gym's own base, over HTTP."""

import importlib.util
import json
import random
from unittest.mock import MagicMock

import pytest

import pettingllms
from pettingllms.cli.package import Parcel, write_parcel

LIBRARY = "nemo_gym"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

ARGUMENTS = {"blocks": 4, "team": "proposer-planner"}
RESPONSE = {
    "id": "response",
    "created_at": 0,
    "model": "model",
    "object": "response",
    "output": [],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
}


@pytest.fixture
def folder(library, tmp_path):
    parcel = Parcel("blocksworld_v0", "nemo-gym", ARGUMENTS, "pettingllms==0.1.0", 10, 0)
    write_parcel(parcel, tmp_path)
    return tmp_path / parcel.name


@pytest.fixture
def client(folder):
    from fastapi.testclient import TestClient
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.server_utils import ServerClient

    spec = importlib.util.spec_from_file_location("packaged_server", folder / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = BaseResourcesServerConfig(host="127.0.0.1", port=8080, entrypoint="app.py", name="x")
    server = module.TeamServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


@pytest.fixture
def example(folder):
    return json.loads((folder / "data" / "example.jsonl").read_text().splitlines()[0])


def posted(client, path, body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("policy", ["oracle", "random"])
def test_an_episode_is_the_local_one_and_is_judged(client, example, policy):
    twin, rng = pettingllms.make("blocksworld_v0", checks=False, **ARGUMENTS), random.Random(0)
    twin.reset(seed=example["seed"])
    posted(client, "/seed_session", example)
    seen = {"done": False}
    while not seen["done"]:
        text = twin.scripted_action(twin.agent_selection, policy, rng)
        seen = posted(client, "/act", {"text": text})
        twin.step(text)
        assert seen["done"] == (not twin.acting())
        if not seen["done"]:
            assert seen["agent"] == twin.agent_selection
            assert seen["observation"] == str(twin.observe(twin.agent_selection))
    verdict = posted(client, "/verify", {**example, "response": RESPONSE})
    success = bool(twin.infos["planner_0"]["success"])
    assert verdict["success"] == success == (policy == "oracle")
    assert verdict["reward"] == float(success)


def test_the_examples_are_requests_of_nemo_gym(folder):
    from nemo_gym.base_resources_server import BaseRunRequest

    lines = (folder / "data" / "example.jsonl").read_text().splitlines()
    assert lines
    for line in lines:
        request = BaseRunRequest.model_validate_json(line)
        assert request.responses_create_params.tools
