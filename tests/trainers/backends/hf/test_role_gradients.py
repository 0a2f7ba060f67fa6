"""Gradients of roles from one backward pass are those that are computed one by one."""

import itertools
import tomllib

import pytest
import torch
from backend_toys import sample_groups

from pettingllms_trainers.backends.build import build_policies
from pettingllms_trainers.backends.hf.learner import Together
from pettingllms_trainers.backends.hf.optimizer import RoleGradients
from pettingllms_trainers.config import Config
from pettingllms_trainers.learning.batch import weighted_groups
from pettingllms_trainers.learning.loss import role_figures
from pettingllms_trainers.ranks import Ranks

ROLES = ("coder", "judge", "tester")


def policy_of(text, rank=0, **optimizer):
    """The planner's policy of the small run, which plays both roles."""
    table = tomllib.loads(text.replace('tool = "t"', 'tool = "p"'))
    del table["policies"]["t"]
    table["policies"]["p"]["lora"] = {"rank": rank}
    table["optimizer"] = {"learning_rate": 1e-3, "role_gradients": True, **optimizer}
    return build_policies(Config.model_validate(table))["p"]


def log_likelihood(statistics, targets):
    return (statistics.logprobs * targets.weights).sum()


def step_of(policy, weighted, *, by_role):
    """The whole gradient that a step used, what was found about roles, and its norm."""
    learner, seen = policy.updater.learner, []
    trained = list(learner.weights.trained.values())
    roles = RoleGradients(trained, Ranks()) if by_role else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.optim.AdamW, "step", lambda _: seen.extend(p.grad.flatten() for p in trained)
        )
        ((_, norm),) = Together([learner]).step([weighted], [log_likelihood], [1e-3], [roles])
    return torch.cat(seen), roles, norm


@pytest.mark.parametrize(("packing", "tokens"), [(True, 40), (True, 16384), (False, 200)])
def test_parts_are_the_gradients_of_the_roles_alone(small_run_file, packing, tokens):
    text = small_run_file(1).read_text()
    cut = {"packing": packing, "tokens_per_microbatch": tokens, "max_grad_norm": 1e9}
    policy = policy_of(text, **cut)
    weighted = weighted_groups(sample_groups(policy, 9, roles=ROLES), "token_mean", 12)
    whole, roles, norm = step_of(policy, weighted, by_role=True)
    expected, _, _ = step_of(policy, weighted, by_role=False)
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-6)
    alone = {
        role: step_of(policy, [w for w in weighted if w.group.role == role], by_role=False)[0]
        for role in ROLES
    }
    for one, other in itertools.product(ROLES, ROLES):
        wanted = float(alone[one] @ alone[other])
        size = float(alone[one].norm() * alone[other].norm())
        assert roles.products[one, other] == pytest.approx(wanted, rel=1e-3, abs=1e-4 * size)
    figures = {found.role: found for found in role_figures([roles.products])}
    assert sum(found.share for found in figures.values()) == pytest.approx(1)
    for role, found in figures.items():
        assert found.norm == pytest.approx(float(alone[role].norm()), rel=1e-3)
        for other in set(ROLES) - {role}:
            cosine = torch.cosine_similarity(alone[role], alone[other], dim=0)
            assert found.cosines[other] == pytest.approx(float(cosine), abs=1e-3)
    assert norm == pytest.approx(float(expected.norm()), rel=1e-3)


def test_an_update_reports_its_roles_and_ends_where_it_would(small_run_file):
    ends, reports = [], []
    for compares in (False, True):
        cut = {"completions_per_minibatch": 12, "num_epochs": 2, "role_gradients": compares}
        policy = policy_of(small_run_file(1).read_text(), **cut)
        reports.append(policy.updater.update(sample_groups(policy, 9, roles=ROLES)))
        ends.append(torch.cat([p.detach().flatten() for p in policy.loaded.model.parameters()]))
    plain, compared = reports
    assert plain.role_gradients == ()
    assert {found.role for found in compared.role_gradients} == set(ROLES)
    assert compared.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-4)


def test_a_role_without_samples_in_a_step_is_left_out_of_it():
    both = {("a", "a"): 4.0, ("a", "b"): -2.0, ("b", "a"): -2.0, ("b", "b"): 4.0}
    one, other = role_figures([both, {("a", "a"): 9.0}])
    assert (one.role, one.norm, one.cosines) == ("a", 2.5, {"b": -0.5})
    assert (other.role, other.norm, other.cosines) == ("b", 2.0, {"a": -0.5})
    assert one.share == pytest.approx((4 - 2 + 9) / (4 - 2 - 2 + 4 + 9))
    assert one.share + other.share == pytest.approx(1)
    assert role_figures([]) == ()
    (nothing,) = role_figures([{("a", "a"): 0.0}])
    assert (nothing.norm, nothing.share, nothing.cosines) == (0.0, 0.0, {})


def test_parts_of_adapters(small_run_file):
    """Norms are those of updates on one role's groups, scaled to its share of the tokens."""

    def update(roles):
        policy = policy_of(small_run_file(1).read_text(), rank=4)
        groups = sample_groups(policy, 9, roles=("tool", "planner"))
        return policy.updater.update([group for group in groups if group.role in roles])

    both = update(("tool", "planner"))
    assert {found.role for found in both.role_gradients} == {"tool", "planner"}
    for found in both.role_gradients:
        alone = update((found.role,))
        assert alone.grad_norm > 0
        scaled = alone.grad_norm * alone.num_tokens / both.num_tokens
        assert found.norm == pytest.approx(scaled, rel=1e-3)
        assert alone.role_gradients[0].share == pytest.approx(1)
