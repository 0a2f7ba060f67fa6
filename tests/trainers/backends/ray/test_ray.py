"""Runs on a Ray cluster: same results as in one process, and what happens when a part is lost."""

import time

import pytest

ray = pytest.importorskip("ray")

from backend_toys import figures  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from pettingllms.files import read_lines  # noqa: E402
from pettingllms_trainers.backends.ray import machines as ray_machines  # noqa: E402
from pettingllms_trainers.backends.ray.machines import RayEpisodes  # noqa: E402
from pettingllms_trainers.backends.ray.policies import PolicyWorker, RemotePolicy  # noqa: E402
from pettingllms_trainers.cli import main  # noqa: E402

NUM_STEPS = 2
CREDITS = {
    "value": ["--algorithm.name=value", "--algorithm.branch-choice=random"],
    "continuation": ["--algorithm.name=continuation"],
    "vine": ["--algorithm.name=vine"],
}
"""Those that need more of the workers than answers to prompts."""


@pytest.fixture(scope="module")
def address():
    """Address of a running cluster of one machine, which has more cores by its own account."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 8,
            "num_gpus": 0,
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
        },
    )
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def run(address, small_run_file, tmp_path, capsys):
    def call(*flags, command=(), out="run", joins=(f"--ray.address={address}",)):
        path = str(small_run_file(NUM_STEPS))
        flags = ["--output-dir", str(tmp_path / out), "--ray.gpus-per-worker=0", *joins, *flags]
        code = main([*command, path, "--ray.enabled", *flags])
        assert not ray.is_initialized()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def whole(small_run_file, tmp_path_factory):
    """Results of the same run in one process."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([str(small_run_file(NUM_STEPS)), "--output-dir", str(out)]) == 0
    return figures(out)


def meeting_worker(place):
    """A kind of worker whose updates begin only when both policies are being updated."""

    class MeetingWorker(PolicyWorker):
        def call(self, name, part, method, *given, **named):
            if method == "update":
                (place / name).touch()
                deadline = time.monotonic() + 60
                while len(list(place.iterdir())) < 2:
                    assert time.monotonic() < deadline, "the other policy is not updated meanwhile"
                    time.sleep(0.01)
            return super().call(name, part, method, *given, **named)

    return MeetingWorker


@pytest.mark.smoke
def test_a_run_is_that_of_one_process_and_policies_are_updated_at_once(
    run, whole, tmp_path, monkeypatch
):
    place = tmp_path / "meeting"
    place.mkdir()
    monkeypatch.setattr(ray_machines, "PolicyWorker", meeting_worker(place))
    code, out, err = run("--ray.num-env-workers=2", "--ray.workers-per-policy=2")
    assert code == 0, err
    assert "policies, greedy" in out
    assert figures(tmp_path / "run") == pytest.approx(whole, rel=1e-3, abs=1e-5)
    for name in ("t", "p"):
        assert (tmp_path / "run" / "policies" / name / "model.safetensors").is_file()


@pytest.mark.parametrize("credit", CREDITS)
def test_every_credit_is_that_of_one_process(run, small_run_file, tmp_path, credit):
    one = tmp_path / "one"
    command = [str(small_run_file(NUM_STEPS)), "--output-dir", str(one), *CREDITS[credit]]
    assert main(command) == 0
    code, _, err = run("--ray.num-env-workers=2", "--ray.workers-per-policy=2", *CREDITS[credit])
    assert code == 0, err
    assert figures(tmp_path / "run") == pytest.approx(figures(one), rel=1e-3, abs=1e-4)


def test_environment_workers_play_the_stages_of_a_curriculum(run, small_run_file, tmp_path):
    stages = "{ kwargs = { max_turns = 1 } }, { kwargs = { max_turns = 3 } }"
    flag = f"--env.curriculum=[{stages}]"
    one = tmp_path / "one"
    assert main([str(small_run_file(NUM_STEPS)), "--output-dir", str(one), flag]) == 0
    code, _, err = run("--ray.num-env-workers=1", flag)
    assert code == 0, err
    assert figures(tmp_path / "run") == pytest.approx(figures(one), rel=1e-3, abs=1e-5)
    names = ("env", "env_seed", "initial_state_hash")
    trees = [
        [[tree[name] for name in names] for tree in read_lines(path / "rollouts.jsonl")]
        for path in (one, tmp_path / "run")
    ]
    assert trees[0] == trees[1]
    assert len({tree[0]["max_turns"] for tree in trees[0]}) == 2, "two stages"


def test_a_lost_policy_ends_the_run_which_can_be_resumed(run, whole, tmp_path, monkeypatch):
    update, calls = RemotePolicy.update, []

    def killed(self, groups):
        calls.append(self)
        if len(calls) == 4:  # the second policy in the second step
            ray.kill(self._workers[0])
        return update(self, groups)

    with monkeypatch.context() as patch:
        patch.setattr(RemotePolicy, "update", killed)
        code, _, err = run()
    assert code == 1
    assert "WorkerLost: a worker of the policy" in err
    assert "Continue from the newest checkpoint with --resume" in err
    assert "Traceback" not in err
    code, _, err = run("--resume")
    assert code == 0, err
    assert figures(tmp_path / "run") == pytest.approx(whole, rel=1e-3, abs=1e-5)


def test_lost_environment_workers_cost_their_episodes_only(run, tmp_path, monkeypatch, caplog):
    branch, calls = RayEpisodes.branch, []

    async def killed(self, episode, texts):
        calls.append(episode)
        if len(calls) == 3:
            ray.kill(self._places[episode].home.actor)
        return await branch(self, episode, texts)

    monkeypatch.setattr(RayEpisodes, "branch", killed)
    flags = ("--ray.num-env-workers=2", "--rollout.max-failed-fraction=0.9")
    code, _, err = run(*flags, "--warm-start.num-steps=0")
    assert code == 0, err
    first, *later = (
        line["eval/greedy/num_failed"]
        for line in read_lines(tmp_path / "run" / "metrics.jsonl")
        if "eval/greedy/num_failed" in line
    )
    assert 1 <= first <= 5, "the other worker went on"
    assert later == [0], "the lost worker came back"
    assert "is lost and started again" in caplog.text


def test_too_few_processors(run, tmp_path):
    code, _, err = run("--ray.cpus-per-worker=100", "--ray.timeout-s=1")
    assert code == 2
    assert "too few free processors: wanted 1 x (0 GPUs, 100 CPUs) for the policy 't'" in err
    assert "there are 0 GPUs, 8 CPUs on 1 machine," in err
    assert not (tmp_path / "run").exists()


def test_a_cluster_of_its_own(run, tmp_path):
    """Only the warm start, which is quick."""
    code, out, err = run("--ray.cpus-per-worker=0.5", command=["warm-start"], joins=())
    assert code == 0, err
    assert "warm_start/p/loss" in out
    assert (tmp_path / "run" / "policies" / "t" / "model.safetensors").is_file()


def test_no_cluster_at_that_address(run, tmp_path):
    code, _, err = run(joins=("--ray.address=127.0.0.1:1",))
    assert code == 2
    assert "ray.address = '127.0.0.1:1': the cluster cannot be joined" in err
    assert not (tmp_path / "run").exists()
