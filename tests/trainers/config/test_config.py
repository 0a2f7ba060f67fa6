"""Run files: every TOML loads, every mistake is named."""

import re
import tomllib
from dataclasses import replace

import pytest
from pydantic import ValidationError

from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import (
    Layer,
    dump_config,
    load_config,
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
    """Return a function that writes a run file: the minimal one with lines put before it."""

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


def test_defaults_then_file_then_flags(run_file):
    path = run_file("[optimizer]\nlearning_rate = 0.5\nweight_decay = 0.25\n")
    config = load_config(path, ["--optimizer.learning-rate", "3e-4"])
    assert config.optimizer.learning_rate == 3e-4
    assert config.optimizer.weight_decay == 0.25
    assert config.optimizer.max_grad_norm == 1.0


def test_flags_may_add_to_open_tables(run_file):
    flags = ["--env.kwargs.view", "centred", "--env.kwargs.max-turns=3", "--env.kwargs.fast=true"]
    flags += ["--warm-start.demonstrators.caller.two", "0.5"]
    config = load_config(run_file(), flags)
    assert config.env[0].kwargs == {"max_turns": 3, "view": "centred", "fast": True}
    assert config.warm_start.demonstrators == {"caller": {"two": 0.5}}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("[optimizer]\nlearning_rat = 1\n", r"did you mean 'optimizer.learning_rate'"),
        ("sede = 1\n", r"unknown key 'sede'; did you mean 'seed'"),
        ("[rollout]\nqqq = 1\n", r"unknown key 'rollout.qqq'; known here: num_levels"),
        ("[policies.x]\nmodell = 'tiny'\n", r"did you mean 'policies.x.model'"),
        ("[optimizer]\nlearning_rate = 'fast'\n", r"'optimizer.learning_rate' is 'fast': .*number"),
        ("[optimizer]\nlearning_rate = -1\n", r"'optimizer.learning_rate' is -1: .*equal to 0"),
        ("[algorithm]\nnum_candidates = 1\n", r"'algorithm.num_candidates' is 1"),
        (
            "[algorithm]\nbranch_choice = 'best'\n",
            r"'algorithm.branch_choice' is 'best': .*'greedy'",
        ),
        ("[optimizer]\nbetas = [0.9, 1.0]\n", r"'optimizer.betas.1' is 1.0: .*less than 1"),
        ("[rollout]\nstop = ['']\n", r"'rollout.stop.0' is '': .*at least 1 character"),
        (
            "[warm_start.demonstrators]\necho = {}\n",
            r"'warm_start.demonstrators.echo' is {}: .*at least 1 item",
        ),
        ("[policies.'a/b']\nmodel = 'tiny'\n", r"a policy has the name 'a/b'; allowed are"),
        ("[policies.'..']\nmodel = 'tiny'\n", r"a policy has the name '\.\.'"),
        ("[optimizer]\nlearning_rate = inf\n", r"'optimizer.learning_rate' is inf: .*finite"),
        ("[policies.idle]\nmodel = 'tiny'\n", r"policy 'idle' plays no role"),
        ("[every_policy]\nfrozen = true\n", r"are frozen, so there is nothing to train"),
        ("[policies.idle]\nfrozen = true\n", r"policies.idle has model = '' and fixed = ''"),
        (
            "[policies.idle]\nmodel = 'tiny'\nfixed = 'oracle'\n",
            r"model = 'tiny' and fixed = 'oracle'; name one",
        ),
        (
            "[policies.idle]\nfixed = 'oracle'\nfrozen = true\nhidden_size = 8\n",
            r"has no weights; remove frozen, hidden_size",
        ),
        ("algorithm = 'grpo'\n", r"algorithm is 'grpo'; write a table \[algorithm\] with name"),
        ("[algorithm]\nname = 3\n", r"algorithm.name is 3; it must be a string"),
        ("[algorithm]\nname = 'gpro'\n", r"which is not installed; did you mean \"grpo\"\?"),
        (
            "[algorithm]\nname = 'no.such:Thing'\n",
            r"no.such:Thing cannot be imported: No module named 'no'",
        ),
        (
            "[algorithm]\nname = 'pettingllms_trainers.config:Config'\n",
            r"pettingllms_trainers.config:Config is not an Algorithm",
        ),
        (
            "[algorithm]\nnum_branchings = 1\n",
            r"num_branchings is not a parameter of at_grpo but of tree_grpo; its own are: num_cand",
        ),
        (
            "[algorithm]\nname = 'grpo'\nnorms = 'std'\n",
            r"norms is not a parameter of grpo; did you mean \"norm\"\?; its own are: .*gamma",
        ),
        (
            "[algorithm]\nname = 'value'\nvalue.modell = 'own'\n",
            r"unknown key 'algorithm.value.modell'; did you mean 'algorithm.value.model'",
        ),
        (
            "[algorithm]\nname = 'reinforce'\ncredit = 'step'\ngamma = 0.9\n",
            r"gamma = 0.9 would change nothing",
        ),
        ("[loss]\ntarget_kl = 0.1\n", r"target_kl = 0.1 would change nothing"),
        (
            "[warm_start]\nnum_steps = 1\n[warm_start.demonstrators.judge]\ntwo = 1\n",
            r"names the role 'judge', and \[roles\] has no such: caller, echo",
        ),
        (
            "[warm_start]\ndata = 'x.jsonl'\n[warm_start.demonstrators.echo]\ntwo = 1\n",
            r"can imitate one of the two",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(run_file, extra, message):
    path = run_file(extra)
    text = problem(path)
    assert str(path) in text
    assert re.search(message, text), text
    assert "\n" not in text


ENDPOINT = "endpoints = ['http://localhost:8000/']"


@pytest.mark.parametrize(
    ("extra", "policy", "message"),
    [
        ("[engine]\nkind = 'vlm'\n", "", r"'engine.kind' is 'vlm': .*'vllm_server'"),
        ("[engine]\nkind = 'vllm_server'\n", "", r"policies.both.endpoints are needed"),
        ("", ENDPOINT, r"got engine.kind = \"transformers\" and 1 endpoints"),
        (
            "[engine]\nkind = 'vllm_server'\n",
            "endpoints = ['localhost:8000']",
            r"'localhost:8000' is not the address of a server, http://",
        ),
        (
            "[engine]\nkind = 'vllm_server'\n",
            "endpoints = ['http://a:1', 'http://a:1/']",
            r"an address is listed twice",
        ),
        ("[engine.vllm]\ngpu_memory_utilisation = 1\n", "", r"did you mean 'engine.vllm.gpu_mem"),
        ("[engine.vllm]\ngpu_memory_utilization = 1.1\n", "", r"less than or equal to 1"),
        (
            "[rollout]\nmax_staleness = 1\n[engine]\nkind = 'vllm'\n[engine.vllm]\nsleep = true\n",
            "",
            r"max_staleness = 1 generates while policies learn, and engine.vllm.sleep = true",
        ),
        (
            "[rollout]\nmax_staleness = 1\n[loss]\nimportance_cap = 0\n",
            "",
            r"rollout.max_staleness = 1 learns from tokens of older weights.*set it above 0",
        ),
        ("[optimizer]\nlearning_rate = true\n", "", r"learning_rate.*true is not a number"),
        ("[rollout]\nnum_levels = true\n", "", r"num_levels.*true is not a number"),
        (
            "[engine.vllm]\nsleep = true\n",
            "",
            r"engine.vllm.sleep = True would change nothing: it counts with engine.kind = \"vllm\"",
        ),
        ("", "lora = { alpha = 16 }", r"lora.alpha = 16 .* counts with policies.both.lora.rank\."),
        ("[rollout.per_role.judge]\nstop = ['x']\n", "", r"'judge', and .roles. has no such: cal"),
        ("[rollout.per_role.echo]\ntop_p = 1\n", "", r"unknown key 'rollout.per_role.echo.top_p'"),
    ],
)  # fmt: skip
def test_mistakes_about_engines_and_roles_are_named(run_file, extra, policy, message):
    text = MINIMAL.replace('model = "tiny"\n', f'model = "tiny"\n{policy}\n')
    found = problem(run_file(extra, text))
    assert re.search(message, found), found
    assert "\n" not in found


def test_two_policies_do_not_share_a_server(run_file):
    text = f"""
[env]
id = "toy_echo_v0"
[engine]
kind = "vllm_server"
[policies.a]
model = "tiny"
{ENDPOINT}
[policies.b]
model = "tiny"
{ENDPOINT}
[roles]
caller = "a"
echo = "b"
"""
    assert "'a' and 'b' name the same server http://localhost:8000;" in problem(run_file(text=text))


@pytest.mark.parametrize(
    ("kind", "given", "resolved"),
    [
        ("transformers", "auto", "engine"),
        ("vllm", "auto", "recompute"),
        ("vllm", "engine", "engine"),
        ("transformers", "recompute", "recompute"),
    ],
)
def test_log_probabilities_are_recomputed_when_the_engine_is_not_the_trainer(
    run_file, kind, given, resolved
):
    config = load_config(run_file(f"[engine]\nkind = '{kind}'\n[loss]\nold_logprobs = '{given}'\n"))
    assert config.resolved_loss.old_logprobs == resolved
    assert config.resolved_loss.importance_cap == 2.0


def test_tokens_of_older_weights_are_weighted(run_file):
    config = load_config(run_file("[rollout]\nmax_staleness = 1\n"))
    assert config.resolved_loss.old_logprobs == "recompute"
    given = "[rollout]\nmax_staleness = 1\n[loss]\nold_logprobs = 'engine'\n"
    assert load_config(run_file(given)).resolved_loss.old_logprobs == "engine"


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


def test_training_has_no_top_p(run_file):
    """Trap 13: what would need processed log-probabilities cannot be asked for."""
    assert "unknown key 'rollout.top_p'" in problem(run_file("[rollout]\ntop_p = 0.9\n"))


def test_roles_and_policies_must_match(run_file):
    text = MINIMAL.replace('echo = "both"', 'echo = "other"')
    assert "names the policy 'other', which is not defined" in problem(run_file(text=text))
    text = MINIMAL.split("[roles]")[0] + "[roles]\n"
    assert "[roles] is empty" in problem(run_file(text=text))
    text = MINIMAL.split("[roles]")[0]
    assert "'roles' is missing" in problem(run_file(text=text))


def test_missing_and_broken_files(tmp_path, run_file):
    path = run_file()
    assert problem(tmp_path / "rum.toml").endswith(f"; did you mean {path}?")
    assert "no run file at" in problem(tmp_path / "other" / "x.toml")
    assert "is not TOML" in problem(run_file("= 3\n"))
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in problem(path)
    assert "cannot be read" in problem(tmp_path)


RANK = ["--policies.both.lora.rank", "8"]


def test_a_wrong_flag_suggests_the_right_one(run_file):
    told = problem(run_file(), "--optimizer.learning-rat", "1")
    assert told.startswith("the command line: unknown key 'optimizer.learning_rat'; did you mean")
    assert "'optimizer.learning_rate'" in told


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
        (["--policies.both.lora.targets", "q_proj", "8", *RANK], "lora", ("q_proj", "8")),
        (["--policies.both.lora.targets", "all-linear", *RANK], "lora", "all-linear"),
        (["--algorithm.branch_choice=random"], "algorithm.branch_choice", "random"),
        (
            ["--algorithm.branching-roles", "echo", "caller"],
            "algorithm.branching_roles",
            ("echo", "caller"),
        ),
        (["--env.kwargs.max-turns", "3"], "env.kwargs", {"max_turns": 3}),
    ],
)
def test_flags_of_every_kind(run_file, flags, key, value):
    config = load_config(run_file(), flags)
    path = "policies.both.lora.targets" if key == "lora" else key
    for part in path.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
        config = config[0] if part == "env" else config
    assert config == value if key != "env.kwargs" else config["max_turns"] == 3


def test_names_of_policies_keep_their_dashes(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[env]\nid = "x"\n[policies.my-own]\nmodel = "tiny"\n[roles]\na = "my-own"\n')
    config = load_config(path, ["--policies.my-own.hidden-size", "32"])
    assert config.policies["my-own"].hidden_size == 32


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algorithm.num-candidates", "1"], "'algorithm.num_candidates' is 1: input should be"),
        (["--deepspeed.offload", "all"], 'deepspeed.offload = "all" needs deepspeed.stage = 3'),
        (
            ["--policies.both.lora.rank=-1"],
            "'policies.both.lora.rank' is -1: input should be greater",
        ),
        (["--optimizer.learning-rate", "nan"], "'optimizer.learning_rate' is nan: input should"),
    ],
)
def test_rules_hold_for_flags_and_are_told_as_for_files(run_file, flags, message):
    told = problem(run_file(), *flags)
    assert told.startswith(f"the command line: {message}")
    assert "input_value" not in told
    assert "pydantic" not in told


NF4 = ["--policies.both.lora.base-precision", "nf4"]
OTHER = '[policies.other]\nmodel = "tiny"\nlora = { rank = 2 }\n'


@pytest.mark.parametrize(
    ("extra", "flags", "message"),
    [
        ("", NF4, "is for the frozen base of an adapter, and both has none"),
        (
            OTHER,
            [*NF4, "--policies.both.lora.rank", "2", "--roles.echo", "other"],
            "the adapters of both and other are on one base, which is stored once",
        ),
        (
            "",
            ["--optimizer.state-bits", "8", "--deepspeed.stage", "2"],
            "leave it out, or deepspeed.stage and fsdp.enabled",
        ),
        ("", ["--fsdp.enabled", "--deepspeed.stage", "2"], "shard the same"),
        ("", ["--optimizer.state-bits", "16"], "'optimizer.state_bits' is 16"),
    ],
)
def test_fewer_bits_are_refused_where_they_cannot_be(run_file, extra, flags, message):
    assert message in problem(run_file(extra), *flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seed", "x"], "the command line: 'seed' is 'x': input should be a valid integer"),
        (["--seed", "1", "2"], "the flag --seed takes one value; it has 1 2"),
        (["--seed"], "the flag --seed needs a value"),
        (["--env.kwargs.size"], "the flag --env.kwargs.size needs a value"),
        (["5"], "the argument '5' belongs to no flag"),
        (["--seed.x", "1"], "the command line: 'seed' is {'x': 1}: input should be a valid int"),
    ],
)
def test_flags_that_cannot_be_read(run_file, flags, message):
    assert problem(run_file(), *flags).startswith(message)


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
    kinds = [table["engine"]["kind"] for table in additions if "engine" in table]
    assert kinds == ["vllm", "vllm_server"]
