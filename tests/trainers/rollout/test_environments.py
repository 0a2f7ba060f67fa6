"""Training and evaluation never share levels, and every decision is a whole prompt."""

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.environments import held_out_kwargs, make_environments


@pytest.fixture
def load():
    return lambda *flags: load_config("recipe:plan_path", list(flags))


def test_other_arguments_of_the_evaluation_leave_it_on_the_test_split(load):
    config = load("--evaluation.kwargs.max_turns", "8")
    assert held_out_kwargs(config, *config.env)["split"] == "test"
    (env,) = make_environments(config)
    assert (env.training[0].max_turns, env.held_out.max_turns) == (6, 8)


def test_a_policy_whose_roles_never_branch_is_refused(load):
    assert load("--algorithm.branching_roles", "planner", "--policies.tool.frozen", "true")
    with pytest.raises(ConfigError, match=r"the policy 'tool' would never be trained.*frozen = tr"):
        load("--algorithm.branching_roles", "planner")
    flags = ["--algorithm.branching_roles", "planner", "--algorithm.grouping", "none"]
    assert load(*flags), "compared with what others earned"
    with pytest.raises(ConfigError, match=r"the policy 'tool' would never be trained"):
        load(*flags, "--algorithm.name", "continuation")


@pytest.mark.parametrize(
    "flags",
    [
        "--rollout.per-role.judge.temperature=1",
        "--algorithm.branching-roles tool planner judge",
        "--rewards.r.function=math:fsum --rewards.r.weights.judge=1",
        "--warm-start.demonstrators.judge.random=1",
    ],
)
def test_a_role_that_no_environment_has_is_named(load, flags):
    config = load(*flags.split())
    with pytest.raises(ConfigError, match=r"'judge', which is not a role\. Roles of plan_path"):
        make_environments(config)


def test_v_is_refused_where_agents_act_at_the_same_time():
    assert make_environments(load_config("recipe:math", ["--algorithm.name", "continuation"]))
    with pytest.raises(ConfigError, match=r"reasoner_0 act at the same time.*continuation"):
        make_environments(load_config("recipe:math", ["--algorithm.name", "value"]))


@pytest.mark.parametrize(
    "flags",
    [
        ("--env.kwargs.split", "test"),
        ("--env.kwargs.split", "all"),
        ("--evaluation.kwargs.split", "train"),
        ("--evaluation.kwargs.split", "all"),
    ],
)
def test_one_split_for_both_is_refused(load, flags):
    with pytest.raises(ConfigError, match="training and evaluation of plan_path_v0 both use split"):
        make_environments(load(*flags))


def test_all_of_a_file_of_its_own_is_held_out(tmp_path):
    """A tenth of it would be, were it cut like the file of training."""
    for name in ("train", "test"):
        rows = (f'{{"question": "{name} {i}?", "answer": "{i}"}}\n' for i in range(40))
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))

    def made(**held_out):
        flags = [f'--evaluation.kwargs.{key}="{value}"' for key, value in held_out.items()]
        source = f'--env.kwargs.source="{tmp_path}/train.jsonl"'
        (found,) = make_environments(load_config("recipe:math", [source, *flags]))
        questions = set()
        for seed in range(400):
            found.held_out.reset(seed=seed)
            questions.add(found.held_out.state().problem.question)
        return questions

    assert made(source=tmp_path / "test.jsonl") == {f"test {i}?" for i in range(40)}
    assert len(made(source=tmp_path / "test.jsonl", split="test")) < 20
    assert {question.split()[0] for question in made()} == {"train"}
    with pytest.raises(ConfigError, match="both use split = 'train'"):
        made(source=tmp_path / "train.jsonl")


def stages(*kwargs):
    return f"--env.curriculum=[{', '.join(f'{{ kwargs = {{ {own} }} }}' for own in kwargs)}]"


def num_rows(env):
    env.reset(seed=1)
    env.render_mode = "ansi"
    return len(env.render().splitlines())


def test_every_stage_has_an_environment_and_the_held_out_one_is_of_none(load):
    (found,) = make_environments(load(stages("max_turns = 3", "size = 7", "max_turns = 9")))
    assert [env.max_turns for env in found.training] == [3, 6, 9]
    assert [num_rows(env) for env in found.training] == [5, 7, 5]
    assert (found.held_out.max_turns, num_rows(found.held_out)) == (6, 5)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (stages("size = 5", "size = 1"), "stage 2 of env.curriculum: invalid .*4 to 64"),
        (stages('difficulty = "esy"', ""), 'stage 1 of env.curriculum: .*did you mean "easy"'),
        (stages("size = 4", "size = 4, min_moves = 60"), "stage 2 of env.curriculum: .*min_moves"),
        (
            stages("", 'team = "single", prompts = {}'),
            "stage 2 of env.curriculum has the agents planner_0, and stage 1 has tool_0, planner_0",
        ),
        (
            stages("", 'split = "test"'),
            "training and evaluation of plan_path_v0 both use split = 'test'",
        ),
        (stages("", 'observation_mode = "delta"'), "observation_mode"),
    ],
)
def test_every_stage_is_checked(load, flag, message):
    with pytest.raises(ConfigError, match=message):
        make_environments(load(flag))


def test_only_training_begins_part_of_the_way_along_a_solution(load):
    flags = ["--env.kwargs.solved_share", "0.5", stages("", "solved_share = 0.8")]
    (found,) = make_environments(load(*flags))
    assert [env.solved_share for env in found.training] == [0.5, 0.8]
    assert found.held_out.solved_share == 0
    with pytest.raises(ConfigError, match=r"plays whole levels; leave solved_share out of"):
        make_environments(load("--evaluation.kwargs.solved_share", "0.5"))
