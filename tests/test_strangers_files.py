"""Whatever a stranger's file or folder names is neither run, nor asked, nor fetched.

Every kind of file that a command or function opens, with every kind of name in it, through every
door. `--trust` lets each of them act, which shows that the traps work.
"""

import ast
import http.server
import json
import shutil
import subprocess
import sys
import threading
import tomllib
import types
import urllib.request
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import tomli_w

from pettingllms.cli.app import run as pettingllms
from pettingllms.errors import UntrustedName
from pettingllms.evaluation import EvaluationPlan, RunFolder, evaluate
from pettingllms.evaluation.bench import FORMAT, QUICK
from pettingllms.evaluation.rows import rows_of
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.transcript import Transcript
from pettingllms.viewer import LiveServer
from pettingllms_trainers import load_run, train
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main as pettingllms_train
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.own_loop import open_policies
from pettingllms_trainers.runs.trackers import WeightsAndBiases

TRAP = "import pathlib\npathlib.Path({sprung!r}).touch()\n"
"""A module that leaves a file behind when it is imported."""
STRANGERS = tomllib.loads(Path(__file__).with_name("strangers.toml").read_text(encoding="utf-8"))
ENVIRONMENTS, KEYS, RUN = (STRANGERS[name] for name in ("environments", "keys", "run"))
FROZEN = {"model": "stranger/model", "frozen": True}
POLICIES = ("openai:m@URL", "openai:m", "openai:trap.py", "hf:stranger/model")


class Listener:
    """A server that counts who comes; nobody should."""

    def __init__(self):
        self.requests = []
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                listener.requests.append((self.path, self.headers.get("authorization")))
                self.send_error(500)

            do_GET = do_POST = answer

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Place:
    """A working directory with traps, and what strangers' files there look like."""

    def __init__(self, folder, evaluated, listener):
        self.folder, self.evaluated, self.listener = folder, evaluated, listener
        self.sprung = folder / "sprung"
        self.requests = listener.requests
        for name in ("trap.py", "pack/__init__.py", "pack/inner.py"):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(TRAP.format(sprung=str(self.sprung)))

    def filled(self, value):
        text = json.dumps(value).replace("SPRUNG", str(self.sprung))
        return json.loads(text.replace("HERE", str(self.folder)).replace("URL", self.listener.url))

    def transcript(self, id, kwargs):
        header = {"format": "pettingllms-transcript", "version": 1, "id": id, "kwargs": kwargs}
        header |= {"seed": 1, "options": {}, "state_hash": "x"}
        path = self.folder / "episode.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, {"end": 0})))
        return str(path)

    def evaluation(self, id="plan_path_v0", kwargs=None, policy="random", name="evaluation"):
        path = self.folder / name
        shutil.copytree(self.evaluated, path)
        data = json.loads((path / "run.json").read_text())
        team = {"tool": policy, "planner": policy}
        data["plan"] |= {"env_id": id, "num_levels": 2, "variants": {"main": team}}
        data["plan"]["env_kwargs"] |= kwargs or {}
        (path / "run.json").write_text(json.dumps(data))
        return str(path)

    def training(self, name="training", **changes):
        path = self.folder / name
        path.mkdir()
        config = {**RUN, "output_dir": str(path), **changes}
        (path / "config.toml").write_text(tomli_w.dumps(config))
        first = config["env"][0] if isinstance(config["env"], list) else config["env"]
        tree = {**STRANGERS["tree"], "cause": None, "env_id": first["id"], "env": first["kwargs"]}
        (path / "rollouts.jsonl").write_text(json.dumps(tree) + "\n")
        (path / "metrics.jsonl").write_text('{"step": 2, "rollout/success": 0.5}\n')
        (path / "checkpoints" / "step-00000001").mkdir(parents=True)
        (path / "checkpoints" / "step-00000001" / "state.json").write_text("{}")
        return str(path)

    def trained_in(self, id, kwargs):
        return self.training(env={"id": id, "kwargs": kwargs})

    def words(self, line, id="plan_path_v0", kwargs=None, policy="random"):
        """The words of a command line, with the files of a stranger that names these."""
        made = {
            "TRANSCRIPT": lambda: self.transcript(id, kwargs or {}),
            "EVALUATION": lambda: self.evaluation(id, kwargs, policy),
            "OTHER": lambda: self.evaluation(id, kwargs, policy, name="other"),
            "TRAINED": lambda: self.trained_in(id, kwargs or {}),
            "FIXED": lambda: self.training(policies=RUN["policies"] | {"fixed": {"fixed": policy}}),
            "FROZEN": lambda: self.training(policies=RUN["policies"] | {"fixed": FROZEN}),
        }
        return [made[word]() if word in made else word for word in line.split()]

    def run_file(self, **changes):
        path = self.folder / "stranger.toml"
        path.write_text(tomli_w.dumps({**RUN, "output_dir": str(self.folder / "new"), **changes}))
        return str(path)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The folder of a real evaluation, whose only episode failed."""
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    plan = EvaluationPlan(
        env_id="plan_path_v0",
        variants={"main": {"tool": "noise", "planner": "noise"}},
        env_kwargs={"size": 4, "max_turns": 1},
        num_levels=1,
    )
    evaluate(RunFolder.create(folder, plan))
    return folder


@pytest.fixture(scope="module")
def listener():
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def place(tmp_path, monkeypatch, evaluated, listener):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", listener.url)
    listener.requests.clear()
    place = Place(tmp_path, evaluated, listener)
    hub = types.ModuleType("datasets")
    hub.load_dataset = lambda *args, **kwargs: place.sprung.touch() or []
    monkeypatch.setitem(sys.modules, "datasets", hub)
    return place


def untouched(place):
    return not place.sprung.exists() and not place.requests


@pytest.mark.parametrize("door", STRANGERS["commands"])
@pytest.mark.parametrize("named", ENVIRONMENTS)
def test_a_command_makes_no_environment_that_a_file_names(place, capsys, door, named):
    line = STRANGERS["commands"][door]
    status = pettingllms(place.words(line, *place.filled(ENVIRONMENTS[named])))
    told = capsys.readouterr().err
    assert untouched(place), told
    assert status == 2, told
    assert "--trust" in told
    assert ENVIRONMENTS[named][0].replace("HERE", str(place.folder)) in told or "data" in named


@pytest.mark.parametrize("door", STRANGERS["views"])
@pytest.mark.parametrize("named", ENVIRONMENTS)
def test_a_page_shows_a_run_and_imports_nothing_that_it_names(place, capsys, door, named):
    loaded = {*sys.modules}
    line = STRANGERS["views"][door]
    assert pettingllms(place.words(line, *place.filled(ENVIRONMENTS[named]))) == 0
    assert untouched(place), capsys.readouterr()
    assert not {"trap", "pack.inner", "runpy"} & ({*sys.modules} - loaded)


@pytest.mark.parametrize("named", ENVIRONMENTS)
def test_a_live_page_imports_nothing_on_a_request(place, named):
    server = LiveServer([Path(place.trained_in(*place.filled(ENVIRONMENTS[named])))])
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        with urllib.request.urlopen(server.url, timeout=300) as answer:
            assert answer.status == 200
    finally:
        server.close()
        thread.join()
    assert untouched(place)


PYTHON = {
    "transcript": lambda p, *named: Transcript.load(p.transcript(*named)).replay(),
    "evaluate": lambda p, *named: evaluate(RunFolder.open(p.evaluation(*named))),
    "make_env": lambda p, *named: RunFolder.open(p.evaluation(*named)).plan.make_env(),
    "rows": lambda p, *named: list(rows_of(p.trained_in(*named))),
    "held_out": lambda p, *named: TrainingRun.open(p.trained_in(*named)).held_out_kwargs(),
    "run.evaluate": lambda p, *named: load_run(p.trained_in(*named)).evaluate(num_levels=1),
    "run.config": lambda p, *named: load_run(p.trained_in(*named)).config,
    "train": lambda p, *named: train(p.run_file(env=env(*named))),
    "policies": lambda p, *named: open_policies(p.run_file(env=env(*named))).__enter__(),
}
"""Doors of Python. Data of a hub are fetched by those who train on them, and not refused there."""
OF_DATA = ("held_out", "run.config", "train", "policies")


def env(id, kwargs):
    return {"id": id, "kwargs": kwargs}


@pytest.mark.parametrize(
    ("door", "named"),
    [
        (door, named)
        for door in PYTHON
        for named in ENVIRONMENTS
        if named not in ("data", "programs") or door not in OF_DATA
    ],
)
def test_a_function_makes_no_environment_that_a_file_names(place, door, named):
    with pytest.raises(UntrustedName, match=r"trust=True"):
        PYTHON[door](place, *place.filled(ENVIRONMENTS[named]))
    assert untouched(place)


@pytest.mark.parametrize("named", ENVIRONMENTS)
def test_a_run_in_python_can_be_looked_at(place, named):
    run = load_run(place.trained_in(*place.filled(ENVIRONMENTS[named])))
    assert "0 of 2" in repr(run) or "2 of 2" in repr(run)
    assert run.view().path.exists()
    assert len(run.metrics) == 1
    assert untouched(place)


@pytest.mark.parametrize("door", STRANGERS["asked"])
@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_asked_because_a_file_names_him(place, capsys, door, policy):
    line = STRANGERS["asked"][door]
    status = pettingllms(place.words(line, policy=place.filled(policy)))
    told = capsys.readouterr().err
    assert untouched(place), told
    assert (status, "--trust" in told) == (2, True), told


def test_a_benchmark_is_not_resumed_with_a_stranger(place, capsys):
    folder = place.folder / "bench"
    folder.mkdir()
    about = {"format": FORMAT, "suite": QUICK.name, "policies": [f"openai:m@{place.listener.url}"]}
    about |= {"name": "x", "sampling": [], "prices": [], "seed": 0, "created": ""}
    about["versions"] = {"pettingllms": "0"}
    (folder / "bench.json").write_text(json.dumps(about))
    assert pettingllms(["bench", "--resume", str(folder)]) == 2
    assert "--trust" in capsys.readouterr().err
    assert untouched(place)


@pytest.mark.parametrize("door", STRANGERS["train"])
@pytest.mark.parametrize("key", KEYS)
def test_a_run_file_names_neither_code_nor_servers(place, capsys, door, key):
    file = place.run_file(**place.filled(KEYS[key]))
    status = pettingllms_train(STRANGERS["train"][door].replace("FILE", file).split())
    told = capsys.readouterr().err
    assert untouched(place), told
    assert (status, "--trust" in told) == (2, True), told
    assert not (place.folder / "new").exists()


@pytest.mark.parametrize("door", STRANGERS["old"])
@pytest.mark.parametrize("key", KEYS)
def test_a_run_folder_names_neither_code_nor_servers(place, capsys, door, key):
    run = place.training(**place.filled(KEYS[key]))
    command, *words = STRANGERS["old"][door].replace("RUN", run).split()
    main = {"pettingllms": pettingllms, "pettingllms-train": pettingllms_train}[command]
    assert main(words) in (1, 2)
    told = capsys.readouterr().err
    assert ("--trust" in told) is (key == "algorithm"), told
    assert untouched(place)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("replay TRANSCRIPT --trust", "trap.py:Trap"),
        ("replay EVALUATION --trust", "trap.py:Trap"),
        ("replay TRAINED --trust", "trap.py:Trap"),
        ("eval --resume EVALUATION --trust", "trap:Trap"),
        ("eval TRAINED --trust", "trap:Trap"),
        ("blame TRANSCRIPT -p oracle --trust", "trap.py"),
        ("data export EVALUATION --out x.jsonl --trust", "trap.py"),
        ("info trap.py", ""),  # typed
    ],
)
def test_what_is_typed_or_trusted_springs_the_trap(place, line, named):
    assert pettingllms(place.words(line, named)) == 2, "it is not an environment"
    assert place.sprung.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        lambda p: [p.run_file(env=env("trap.py", {})), "--trust"],
        lambda p: [p.run_file(algorithm={"name": "trap:Algorithm"}), "--dry-run", "--trust"],
        lambda p: [p.run_file(), "--env.id", "trap.py"],
        lambda p: ["export", p.training(algorithm={"name": "trap:Algorithm"}), "o", "--trust"],
    ],
)
def test_what_is_typed_or_trusted_springs_the_trap_in_training(place, arguments):
    assert pettingllms_train(arguments(place)) == 2, "it is neither environment nor algorithm"
    assert place.sprung.exists()


def test_a_trusted_folder_is_asked_without_a_key_of_others(place, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    run = place.evaluation(policy=f"openai:m@{place.listener.url}")
    assert pettingllms(["eval", "--resume", run, "--trust", "--retries", "0"]) == 1
    assert place.requests
    assert {key for _, key in place.requests} == {"Bearer none"}


@pytest.mark.parametrize("kind", ["llama", "of_a_stranger"])
def test_code_in_a_models_folder_is_not_run(place, kind):
    folder = place.folder / "model"
    build_tiny(folder, max_length=4096)
    shutil.copy(place.folder / "trap.py", folder)
    config = json.loads((folder / "config.json").read_text())
    autos = {name: f"trap.{name}" for name in ("AutoConfig", "AutoModelForCausalLM")}
    config |= {"model_type": kind, "auto_map": autos}
    (folder / "config.json").write_text(json.dumps(config))
    short = ["-n", "1", "-s", "max_completion_tokens=4"]
    status = pettingllms(["eval", "plan_path_v0", *short, "-p", f"hf:{folder}"])
    assert status == (0 if kind == "llama" else 1)
    run = place.run_file(policies=RUN["policies"] | {"tiny": {"model": str(folder)}})
    assert pettingllms_train([run, "--dry-run"]) == (0 if kind == "llama" else 2)
    assert pettingllms_train([run, *SHORT, "--rollout.max-completion-tokens=4"]) == (
        0 if kind == "llama" else 2
    )
    assert not place.sprung.exists()


LOADERS = {
    "pettingllms/sources.py": "what a user has typed",
    "pettingllms/workflows/program.py": "again, for every run, what a user has typed",
    "pettingllms/plugins.py": "what installed packages announce; algorithms of vetted run files",
    "pettingllms/__init__.py": "this package's own modules",
    "pettingllms/cli/__init__.py": "the modules of our two commands",
    "pettingllms/cli/app.py": "this package's own commands",
    "trainers/pettingllms_trainers/backends/engines.py": "this package's own engines",
    "pettingllms/adapters/optional.py": "a library whose name the adapter has",
    "envs/pettingllms_envs/math/base.py": "modules of reasoning-gym",
    "envs/pettingllms_envs/datasets/loading.py": "two libraries that it names itself",
}
"""Modules in which a name that is not a literal becomes code, and whose name it is."""
IMPORTING = ("import_module", "spec_from_file_location", "run_path", "run_module", "EntryPoint")
RUNNING = ("exec", "eval", "compile", "__import__")


def names_code(call):
    match call.func:
        case ast.Attribute(value=ast.Subscript(), attr="load"):
            return True  # of an entry point
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in IMPORTING:
            return not all(isinstance(argument, ast.Constant) for argument in call.args[:1])
        case ast.Name(id=name):
            return name in RUNNING
    return False


def test_names_become_code_in_these_modules_and_in_no_others(repository):
    found = set()
    for folder in ("pettingllms", "envs", "trainers"):
        for path in (repository / folder).rglob("*.py"):
            calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
            if "sandbox/jail" not in str(path) and any(map(names_code, calls)):
                found.add(path.relative_to(repository).as_posix())
    assert found == set(LOADERS)


LAUNCH = """
import sys, torch
torch.cuda.device_count = lambda: 1
from pettingllms_trainers.cli import main
sys.exit(main(["launch", "recipe:plan_path", *sys.argv[1:]]))
"""
SHORT = ("--num-steps=0", "--warm-start.num-steps=0", "--evaluation.num-episodes=1", "--device=cpu")
BIN = Path(sys.executable).parent
STARTED = {
    "view": lambda p: [BIN / "pettingllms", "view", p.transcript("reasoning_gym:any", {})],
    "replay": lambda p: [BIN / "pettingllms", "replay", p.transcript("reasoning_gym:any", {})],
    "kind": lambda p: [
        *(BIN / "pettingllms", "replay", p.transcript("reasoning_gym:x/../trap.py:Trap", {}))
    ],
    "doctor": lambda p: [BIN / "pettingllms", "doctor"],
    "dry run": lambda p: [BIN / "pettingllms-train", "recipe:plan_path", "--dry-run"],
    "launch": lambda p: [sys.executable, "-P", "-c", LAUNCH, *SHORT],
}


@pytest.mark.parametrize("command", STARTED)
def test_modules_that_lie_beside_a_strangers_file_are_not_imported(place, command):
    names = {*sys.stdlib_module_names, *packages_distributions(), "reasoning_gym", "megatron"}
    for name in names - {"pettingllms", "pettingllms_envs", "pettingllms_trainers", "trap"}:
        shutil.copy(place.folder / "trap.py", place.folder / f"{name}.py")
    words = [str(word) for word in STARTED[command](place)]
    done = subprocess.run(words, cwd=place.folder, capture_output=True, text=True, timeout=300)
    assert untouched(place), done.stderr
    assert done.returncode == (2 if command in ("replay", "kind") else 0), done.stderr


def test_a_transcript_with_a_colon_in_its_name_is_a_transcript(place, capsys):
    path = Path(place.transcript("plan_path_v0", {}))
    path.rename(path.with_name("trap:one"))
    assert pettingllms(["blame", "trap:one", "-p", "oracle"]) == 2
    assert "no answers" in capsys.readouterr().err
    assert untouched(place)


OUTSIDE = ".view.html.partial", ".report.md.partial", ".run.json.partial", ".config.toml.partial"


def linked(place, folder, *names):
    """Put links to a file outside into a folder; return that file."""
    victim = place.folder / "victim"
    victim.write_text("mine")
    for name in names:
        (Path(folder) / name).unlink(missing_ok=True)
        (Path(folder) / name).symlink_to(victim)
    return victim


@pytest.mark.parametrize(
    ("arguments", "names", "status"),
    [
        (lambda run: ["view", run], ("view.html", *OUTSIDE), 0),
        (lambda run: ["eval", "--resume", run], ("report.json", "report.md", *OUTSIDE), 0),
        (lambda run: ["eval", "--resume", run], ("episodes.jsonl",), 2),
        (lambda run: ["eval", "--resume", run], ("answers.jsonl",), 2),
    ],
)
def test_links_in_an_evaluation_lead_nowhere(place, arguments, names, status):
    run = place.evaluation()
    victim = linked(place, run, *names)
    assert pettingllms(arguments(run)) == status
    assert victim.read_text() == "mine"


def test_links_in_a_run_lead_nowhere(place):
    flags = [*SHORT, "--logging.progress=off", "--logging.no-tensorboard"]
    command = ["recipe:plan_path", *flags, "--output-dir", "run"]
    assert pettingllms_train([*command, "--num-steps=1", "--rollout.num-levels=2"]) == 0
    victim = linked(place, "run", *OUTSIDE, "metrics.jsonl", "evaluations.jsonl")
    victim.write_text("")
    again = [*command, "--num-steps=2", "--rollout.num-levels=2", "--resume"]
    assert pettingllms_train(again) == 0
    assert victim.read_text() == ""


def test_a_name_in_a_report_ends_no_line(place):
    run = Path(place.evaluation(policy="random\nimport os\n"))
    data = json.loads((run / "run.json").read_text())
    data["plan"]["num_levels"] = 1  # it is finished
    (run / "run.json").write_text(json.dumps(data))
    assert pettingllms(["eval", "--resume", str(run)]) == 0
    assert "\nimport os" not in (run / "report.md").read_text()


def adapter(folder, base, **more):
    folder.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(base), "task_type": "CAUSAL_LM"}
    settings |= {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], **more}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    (folder / "adapter_model.safetensors").write_bytes(bytes(8))
    return folder


def test_an_adapter_names_no_modules_through_its_base(place, capsys):
    build_tiny(place.folder / "model", max_length=4096)
    (place.folder / "megatron").mkdir()
    for name in ("__init__.py", "core.py"):
        shutil.copy(place.folder / "trap.py", place.folder / "megatron" / name)
    named = {"megatron_config": {"x": 1}, "megatron_core": "megatron.core"}
    inner = adapter(place.folder / "inner", place.folder / "model", **named)
    outer = adapter(place.folder / "outer", inner)
    for folder in (inner, outer):
        assert pettingllms(["eval", "plan_path_v0", "-n", "1", "-p", f"hf:{folder}"]) == 1
        assert "adapter" in capsys.readouterr().err
    assert untouched(place)


@pytest.mark.parametrize("name", ["filemodel", "filemodel?precision=float32", "outer", "a" * 300])
def test_a_file_names_no_model_of_the_hub_by_what_lies_here(place, capsys, name):
    (place.folder / "filemodel").touch()
    adapter(place.folder / "outer", "stranger/base")
    assert pettingllms(["eval", "--resume", place.evaluation(policy=f"hf:{name}")]) in (1, 2)
    told = capsys.readouterr().err
    assert "--trust" in told or "where a file names it" in told
    assert untouched(place)


@pytest.mark.parametrize("changes", [{"kwargs": {"checks": 1}}, {"kwargs": [1]}, {"options": [1]}])
def test_arguments_of_another_kind_are_damage(place, changes):
    path = Path(place.transcript("plan_path_v0", {}))
    header, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(header) | changes), *rest]) + "\n")
    assert pettingllms(["replay", str(path)]) == 1
    assert pettingllms(["view", str(path)]) == 0


def test_what_python_has_typed_is_trusted_afterwards(place):
    folder = Path(__file__).parents[1] / "examples"
    for name in ("one_file_game.py", "one_file_game.toml"):
        shutil.copy(folder / name, place.folder)
    small = {"num_steps": 0, "warm_start": {"num_steps": 0}, "evaluation": {"num_episodes": 1}}
    config = tomllib.loads((place.folder / "one_file_game.toml").read_text())
    run = train(config, **small, output_dir="typed")
    assert run.config.env[0].id.endswith("one_file_game.py")
    assert run.evaluate(num_levels=1).is_complete


def test_a_settings_file_does_not_say_who_gets_the_key_of_a_tracker(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    path = place.folder / "wandb" / "settings"
    path.parent.mkdir()
    path.write_text(f"[default]\nbase_url = {place.listener.url}\n")
    config = load_config("recipe:plan_path", ["--logging.wandb-project", "p"])
    with pytest.raises(ConfigError, match="WANDB_BASE_URL"):
        WeightsAndBiases(place.folder, config, 0)
