"""Run files: every TOML loads, files are merged, recipes are found, every mistake is named."""

import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pettingllms_trainers.cli import main
from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import (
    Layer,
    config_of,
    dump_config,
    load_config,
    merge_layers,
    recipe_names,
    validate,
)
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.types import SamplingSettings

RECIPES = [f"recipe:{name}" for name in recipe_names() if "/" not in name]
MINIMAL = """
[env]
id = "toy_echo_v0"
kwargs = { max_turns = 2 }
[policies.both]
model = "tiny"
[roles]
caller = "both"
echo = "both"
"""


@pytest.fixture
def run_file(tmp_path):
    """A function that writes a run file: the minimal one with lines put before it."""

    def write(extra="", text=MINIMAL):
        path = tmp_path / "run.toml"
        path.write_text(extra + text)
        return path

    return write


def problem(path, *flags):
    with pytest.raises(ConfigError) as caught:
        load_config(path, flags, trust=True)
    return str(caught.value)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_loads_and_loads_back_equal(recipe, tmp_path):
    config = load_config(recipe)
    copy = tmp_path / "copy.toml"
    copy.write_text(dump_config(config))
    assert load_config(copy) == config
    assert config_hash(load_config(copy)) == config_hash(config)


@pytest.mark.parametrize(
    ("kind", "age", "given", "resolved"),
    [
        ("transformers", 0, "auto", "engine"),
        ("transformers", 1, "auto", "recompute"),
        ("vllm", 0, "auto", "recompute"),
        ("vllm", 0, "engine", "engine"),
        ("transformers", 1, "engine", "engine"),
        ("transformers", 0, "recompute", "recompute"),
    ],
)
def test_log_probabilities_are_recomputed_where_the_engines_are_not_those_of_the_trainer(
    run_file, kind, age, given, resolved
):
    flags = [f"--engine.kind={kind}", f"--rollout.max-staleness={age}"]
    config = load_config(run_file(), [*flags, f"--loss.old-logprobs={given}"])
    assert config.resolved_loss.old_logprobs == resolved
    assert config.resolved_loss.importance_cap == 2.0


def test_keys_of_ratios_count_where_log_probabilities_may_be_recomputed(run_file):
    flags = ["--engine.max-logprob-gap=2", "--loss.old-logprobs=engine"]
    assert load_config(run_file(), flags).engine.max_logprob_gap == 2, "always checked"
    flags += ["--loss.importance-cap=3"]
    with pytest.raises(ConfigError, match=r"importance_cap = .* would change nothing"):
        load_config(run_file(), flags)
    # There the trainer's own count where the engine's are rounded.
    assert load_config(run_file(), [*flags, "--engine.precision=bfloat16"]).loss.importance_cap == 3


def test_what_a_role_does_not_name_is_that_of_all(run_file):
    lines = "[rollout]\ntemperature = 0.9\nstop = ['x']\n[rollout.per_role.echo]\n"
    flags = ["--rollout.per-role.echo.stop", "[]", "--rollout.per-role.echo.temperature", "0.5"]
    config = load_config(run_file(lines + "max_completion_tokens = 9\n"), flags)
    assert sampling_of(config.rollout, "caller") == SamplingSettings(temperature=0.9, stop=("x",))
    echo = SamplingSettings(temperature=0.5, max_completion_tokens=9)
    assert sampling_of(config.rollout, "echo") == echo
    assert sampling_of(config.rollout, "echo", 0.0) == replace(echo, temperature=0.0)
    copy = run_file(text=dump_config(config))
    assert load_config(copy) == config


def test_missing_and_broken_files(tmp_path, run_file):
    path = run_file()
    assert problem(tmp_path / "rum.toml").endswith(f'; did you mean "{path.name}"?')
    assert "no run file at" in problem(tmp_path / "other" / "x.toml")
    assert "is not TOML" in problem(run_file("= 3\n"))
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in problem(path)
    assert "holds no run" in problem(tmp_path)


RANK, TARGETS = ["--policies.both.lora.rank", "8"], "--policies.both.lora.targets"


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        (["--seed", "5"], "seed", 5),
        (["--output-dir", "2024"], "output_dir", "2024"),
        (["--logging.no-tensorboard"], "logging.tensorboard", False),
        (["--ray.enabled"], "ray.enabled", True),
        (["--ray.enabled", "false"], "ray.enabled", False),
        (["--rollout.stop", "a", "8"], "rollout.stop", ("a", "8")),
        (["--rollout.stop"], "rollout.stop", ()),
        (["--optimizer.betas", "0.5", "0.75"], "optimizer.betas", (0.5, 0.75)),
        (["--optimizer.betas", "[0.5, 0.75]"], "optimizer.betas", (0.5, 0.75)),
        ([TARGETS, "q_proj", "8", *RANK], TARGETS[2:], ("q_proj", "8")),
        ([TARGETS, "all-linear", *RANK], TARGETS[2:], "all-linear"),
        (["--algorithm.branch_choice=random"], "algorithm.branch_choice", "random"),
        (
            ["--algorithm.branching-roles", "echo", "caller"],
            "algorithm.branching_roles",
            ("echo", "caller"),
        ),
    ],
)
def test_flags_of_every_kind(run_file, flags, key, value):
    config = load_config(run_file(), flags)
    for part in key.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    assert config == value


def test_names_of_policies_keep_their_dashes(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[env]\nid = "x"\n[policies.my-own]\nmodel = "tiny"\n[roles]\na = "my-own"\n')
    config = load_config(path, ["--policies.my-own.hidden-size", "32"])
    assert config.policies["my-own"].hidden_size == 32


def test_help_shows_the_values_of_the_file(run_file, capsys):
    with pytest.raises(SystemExit) as caught:
        load_config(run_file("seed = 4711\n"), ["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "4711" in text
    assert "toy_echo_v0" in text


def undocumented(model, prefix=""):
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and hasattr(kind, "model_fields"):
            yield from undocumented(kind, f"{prefix}{name}.")
        elif not field.description:
            yield prefix + name


def test_every_key_is_explained():
    assert list(undocumented(Config)) == []


def test_configurations_are_frozen(run_file):
    with pytest.raises(ValidationError):
        load_config(run_file()).seed = 3


def test_the_hash_ignores_only_where_and_what_is_shown(run_file):
    config = load_config(run_file())
    same = load_config(run_file(), ["--output-dir", "x", "--logging.progress", "off"])
    other = load_config(run_file(), ["--seed", "1"])
    assert config_hash(config) == config_hash(same)
    # `launch --servers` starts them on other ports when a run is resumed.
    moved = {
        name: policy.model_copy(update={"endpoints": ("http://localhost:40001",)})
        for name, policy in config.policies.items()
    }
    assert config_hash(config.model_copy(update={"policies": moved})) == config_hash(config)
    assert config_hash(config) != config_hash(other)


def test_a_version_with_more_keys_goes_on_with_the_same_hash(run_file):
    class Newer(Config):
        new_key: int = 3

    config = load_config(run_file("[algorithm]\nbranch_choice = 'random'\n"))
    newer = Newer.model_validate(config.model_dump())
    assert config_hash(newer) == config_hash(config)
    assert config_hash(newer.model_copy(update={"new_key": 4})) != config_hash(config)


def _blocks(page):
    text = page.read_text(encoding="utf-8")
    return [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]


def test_the_run_files_of_the_documents_are_valid(repository):
    """Those about hardware are additions to the first one of train.md."""
    whole, *_ = _blocks(repository / "docs" / "train.md")
    pages = ("engines", "gpus", "machines")
    additions = [b for name in pages for b in _blocks(repository / "docs" / f"{name}.md")]
    for addition in additions:
        replaced = {"policies", "roles"} if "roles" in addition else set()
        base = {key: value for key, value in whole.items() if key not in replaced}
        validate([Layer("train.md", base), Layer("addition", addition)])
    engines = [table["engine"] for table in additions if "engine" in table]
    kinds = [engine["kind"] for engine in engines if "kind" in engine]
    assert kinds == ["vllm", "vllm_server"]


def test_paths_mean_the_same_in_every_working_directory(load, tmp_path, monkeypatch):
    """A run is exported, evaluated and resumed elsewhere, where `models/base` may be on a hub."""
    monkeypatch.chdir(tmp_path)
    for name in ("models/base", "tiny"):
        (tmp_path / name).mkdir(parents=True)
    flags = ["--env.id=toy_echo_v0", "--roles.caller=p", "--roles.echo=q"]
    flags += ["--policies.p.model=models/base", "--policies.q.model=tiny"]
    flags += ["--rewards.r.model=o/hub", "--warm-start.num-steps=1", "--warm-start.data=rows.jsonl"]
    flags += ["--engine.kind=vllm", "--engine.vllm-server.sync-dir=shared"]
    config = load("", flags=flags)
    assert config.policies["p"].model == str(tmp_path / "models/base")
    assert (config.policies["q"].model, config.rewards["r"].model) == ("tiny", "o/hub")
    assert config.warm_start.data == str(tmp_path / "rows.jsonl")
    # The trainer writes there, and servers that were started elsewhere read.
    assert config.engine.vllm_server.sync_dir == str(tmp_path / "shared")
    assert load("", flags=[*flags, "--rewards.r.model=models/base"]).rewards["r"].model == (
        config.policies["p"].model
    )


TASK = """
[env]
id = "toy_echo_v0"
kwargs = { max_turns = 2 }
[roles]
caller = "caller"
echo = "echo"
"""
MODEL = """
[every_policy]
model = "tiny"
num_layers = 2
chat_template_kwargs = { enable_thinking = false, x = 1 }
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_every_policy_has_common_keys_unless_it_has_its_own(load, order):
    own = "[policies.echo]\nnum_layers = 7\nchat_template_kwargs = { x = 2 }\n"
    texts = (TASK, MODEL, own)
    config = load(*(texts[index] for index in order))
    assert set(config.policies) == {"caller", "echo"}
    caller, echo = config.policies["caller"], config.policies["echo"]
    assert (caller.model, caller.num_layers, echo.model, echo.num_layers) == ("tiny", 2, "tiny", 7)
    assert caller.chat_template_kwargs == {"enable_thinking": False, "x": 1}
    assert echo.chat_template_kwargs == {"enable_thinking": False, "x": 2}


def test_sizes_of_a_tiny_model_go_where_a_later_file_names_another(load):
    other = "[every_policy]\nmodel = 'other'\nchat_template_kwargs.x = 3\n"
    policy = load(TASK, MODEL, other).policies["caller"]
    assert (policy.model, policy.num_layers, policy.chat_template_kwargs["x"]) == ("other", 3, 3)
    with pytest.raises(ConfigError, match=r"num_layers = 2 would .* policies.\w+.model = .tiny"):
        load(TASK, MODEL.replace("tiny", "other"))


def test_one_policy_plays_every_role_of_the_files_before(load):
    config = load(TASK, MODEL, 'every_role = "team"\n')
    assert config.roles == {"caller": "team", "echo": "team"}
    assert list(config.policies) == ["team"]
    later = load(TASK, MODEL, 'every_role = "team"\n', '[roles]\necho = "other"\n')
    assert later.roles == {"caller": "team", "echo": "other"}


values = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8
)
tables = st.dictionaries(st.sampled_from("abc"), values)


@given(st.lists(tables, min_size=1, max_size=4))
def test_merging_keeps_the_last_value_and_changes_no_file(contents):
    before = repr(contents)
    merged = merge_layers([Layer(str(n), table) for n, table in enumerate(contents)])
    assert repr(contents) == before
    assert set(merged) == {key for table in contents for key in table}
    for key, value in contents[-1].items():
        if not isinstance(value, dict):
            assert merged[key] == value
    again = merge_layers([Layer("", merged), Layer("", contents[-1])])
    assert again == merged, "merging the last file again changes nothing"


def test_a_recipe_is_found_from_anywhere_and_is_what_its_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("recipe:queens").env[0].id == "queens_v0"
    both = ["recipe:plan_path", "recipe:options/outcome"]
    assert load_config(both).env[0].kwargs["reward"] == "outcome"
    assert config_of("recipe:plan_path", {"num_steps": 5}).num_steps == 5


def test_a_wrong_name_is_corrected():
    with pytest.raises(ConfigError, match='recipe:planpath; did you mean "plan_path"'):
        load_config("recipe:planpath")
    with pytest.raises(ConfigError, match=r"no recipe:\.\./x; there are: blocksworld, "):
        load_config("recipe:../x")


def test_a_run_records_what_it_was_read_from_and_is_the_same_run_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.toml").write_text("num_steps = 7\n")
    config = load_config(["recipe:queens", "more.toml"], ["--seed", "3"])
    assert config.sources == ("recipe:queens", str(tmp_path / "more.toml"))
    (tmp_path / "config.toml").write_text(dump_config(config))
    again = load_config(["config.toml", "more.toml"])
    assert again.sources == (*config.sources, str(tmp_path / "more.toml"))
    assert config_hash(again) == config_hash(config)


def test_the_table_of_a_recipe_changes_nothing_and_is_checked(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[recipe]\ntask = 'x'\n[recipe.recorded]\nseeds = 0\n")
    with pytest.raises(ConfigError, match=r"run\.toml: 'recipe\.recorded\.seeds': .*left out"):
        load_config(["recipe:queens", path])
    path.write_text("[recipe]\ntask = 'x'\n")
    assert load_config(["recipe:queens", path]).num_steps == load_config("recipe:queens").num_steps


def test_the_list_has_every_recipe_with_its_team_and_result(capsys):
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert {*re.findall(r"^  ([\w./]+)", out, re.M)} == {*recipe_names()}
    assert "two tiny models; team: tool, planner\n" in out
    assert "success 19 to 55 -> 100 %, 5 seeds\n" in out


def test_a_copy_is_the_recipe_and_overwrites_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["recipe", "queens", "--copy"]) == 0
    assert capsys.readouterr().out == "queens.toml\n"
    original, copy = load_config("recipe:queens"), load_config("queens.toml")
    assert copy.model_copy(update={"sources": original.sources}) == original
    (tmp_path / "queens.toml").write_text("mine")
    assert main(["recipe", "queens", "--copy", "queens.toml"]) == 2
    assert (tmp_path / "queens.toml").read_text() == "mine"
    assert main(["recipe", "recipe:options/outcome"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["algorithm"]["name"] == "reinforce"
