"""The two-agent toy as a workflow: the same trees and advantages as the environment."""

import dataclasses
import itertools
import json
import random
import socket
import sys
import time

import pytest
import workflow_toys

from pettingllms.ends import End
from pettingllms.errors import SandboxError
from pettingllms.workflows import Workflow, WorkflowEnv
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.grpo import Grpo
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.algorithms.tree_grpo import TreeGrpo
from pettingllms_trainers.learning.groups import score_decisions

ANSWERS = ("1", "2", "5", "-3", "99", "none", "")


WHOLE = {"algorithm": Reinforce, "seeds": (7, 7, 7, 8, 8, 8), "apart": 100}
WAYS = {
    "greedy": ({}, AtGrpo()),
    "softmax": ({"branch_choice": "softmax", "branch_temperature": 0.5}, AtGrpo()),
    "random": ({"branch_choice": "random"}, AtGrpo()),
    "one role branches": ({"branching_roles": ("echo",)}, AtGrpo()),
    "continuations": (
        {"algorithm": Continuation, "num_continuations": 2, "gamma": 0.9, "num_candidates": 2},
        Continuation(),
    ),
    "whole episodes first": ({"algorithm": TreeGrpo, "num_branchings": 2}, TreeGrpo()),
    "threads": ({"env_threads": 4}, AtGrpo()),
    "whole episodes": (WHOLE, Grpo()),
    **{credit: (WHOLE, Reinforce(credit=credit)) for credit in ("return_to_go", "success", "step")},
}
"""How episodes are played, and by what the trees are scored."""


def script(prompt, candidate, seed):
    return random.Random(f"{prompt} {candidate} {seed}").choice(ANSWERS)


def scores(scored):
    """What was scored, but for the hashes of states."""
    advantages = [[one.advantage for one in d.candidates] for d in scored.decisions]
    return advantages, dataclasses.replace(scored, decisions=())


def without_hashes(trees):
    def bare(decisions):
        return tuple(dataclasses.replace(one, state_key="") for one in decisions)

    return [
        dataclasses.replace(
            tree, initial_state_hash="", decisions=bare(tree.decisions), prefix=bare(tree.prefix)
        )
        for tree in trees
    ]


@pytest.mark.parametrize("way", WAYS)
def test_the_workflow_gives_the_trees_of_the_environment(way, echo_env, scripted_pool, play):
    settings, algorithm = WAYS[way]
    settings = {"seeds": range(2), "num_candidates": 4} | settings
    trees = [
        play(env, scripted_pool(script)[0], **settings)
        for env in (echo_env(max_turns=3), WorkflowEnv(workflow_toys.echo(3)))
    ]
    ours, theirs = map(without_hashes, trees)
    assert ours == theirs
    scored = [score_decisions(found, algorithm) for found in trees]
    assert scores(scored[0]) == scores(scored[1])
    assert scored[0].decisions, "some groups have something to teach"
    errors = [c.parse_error for tree in theirs for d in tree.decisions for c in d.candidates]
    assert {"not a number", None} == set(errors)


def one_call(run, **fields):
    return WorkflowEnv(
        Workflow(
            run=run,
            reward=lambda task, outcome: float(outcome),
            roles=("caller", "echo"),
            tasks={"train": [1], "test": [2]},
            **fields,
        )
    )


def ask(client, text="go"):
    chat = client.openai().chat.completions
    found = chat.create(model="caller", messages=[{"role": "user", "content": text}])
    return found.choices[0].message.content


def test_an_answer_that_makes_the_workflow_fail_is_compared_with_its_siblings(
    scripted_pool, play, caplog
):
    env = one_call(lambda task, client: ask(client))
    pool, _ = scripted_pool(lambda prompt, k, seed: ("3", "no number", "5")[k])
    (tree,) = play(env, pool)
    (decision,) = tree.decisions
    assert [c.reward for c in decision.candidates] == [3.0, 0.0, 5.0]
    assert [c.end for c in decision.candidates] == [End.ANSWERED, End.CODE, End.ANSWERED]
    assert (decision.chosen, tree.end) == (2, End.ANSWERED)
    (record,) = caplog.records
    assert "could not convert string to float: 'no number'" in record.getMessage()
    assert "Traceback" in record.getMessage()


FAILURES = {
    ("time", 0.2): lambda text: time.sleep(2),
    ("time", 60): lambda text: (_ for _ in ()).throw(TimeoutError("the tool hangs")),
    ("connection", 60): lambda text: socket.create_connection(("127.0.0.1", 1)),
    ("sandbox", 60): lambda text: (_ for _ in ()).throw(SandboxError("no server")),
    ("code", 60): lambda text: json.loads(text),
    ("code", 61): lambda text: sys.exit(text),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_way_in_which_a_workflow_fails_has_an_end(scripted_pool, play, case):
    end, timeout_s = case

    def run(task, client):
        return FAILURES[case](ask(client))

    pool, engines = scripted_pool(lambda *_: "x")
    (tree,) = play(one_call(run, timeout_s=timeout_s), pool, allowed=1.0)[:1]
    assert tree.end is End(end)
    assert (tree.outcome is None) == (tree.end.kind == "infrastructure")
    assert bool(tree.decisions) == (tree.end.kind != "infrastructure")
    num_tries = 3 if tree.has_failed else 1
    assert len(engines["shared"].calls) == num_tries


def test_a_run_that_asks_something_else_is_played_again(scripted_pool, play):
    starts = itertools.count()

    def run(task, client):
        return ask(client, "another" if next(starts) == 1 else "first")

    pool, _ = scripted_pool(lambda prompt, k, seed: str(k))
    (tree,) = play(one_call(run), pool)
    (decision,) = tree.decisions
    assert [c.completion.text for c in decision.candidates] == ["0", "1", "2"]
    assert decision.observation == "first"


def test_what_a_request_binds_reaches_the_engine_and_what_the_answer_took_comes_back(
    scripted_pool, play
):
    seen = []

    def run(task, client):
        found = client.openai().chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "go"}], stop="END", max_tokens=5
        )
        seen.append((found.usage.prompt_tokens, found.usage.completion_tokens))
        return found.choices[0].message.content

    workflow = Workflow(
        run=run, reward=lambda *_: 1.0, roles=("echo",), tasks={"train": [1], "test": [2]}
    )
    pool, engines = scripted_pool(lambda prompt, candidate, seed: "x" * candidate)
    (tree,) = play(WorkflowEnv(workflow), pool, seeds=[1], num_candidates=2)
    (request,) = engines["shared"].calls[0]
    assert request.sampling.stop == ("END",)
    assert request.sampling.max_completion_tokens == 5
    written = [len(c.completion.token_ids) for c in tree.decisions[0].candidates]
    assert sorted(seen) == [(len(request.prompt_ids), number) for number in written]
