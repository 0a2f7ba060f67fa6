"""Whether a run has stopped learning, seen from its metrics: since when, why, and what may help."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.root import learning_rates
from pettingllms_trainers.rollout.sampler import sampling_of

# Training success from which equal rewards and equal answers are not a problem.
_SOLVED = 0.95
# Share of answers from which their fault is named as the cause.
_MOST = 0.5
# Share of its tokens from which a policy has to learn something.
_LEAST = 0.01
# Share of one answer among all of a role from which the role has collapsed.
_SAME = 0.95

# Share of the gradient from which one role has captured a shared policy; the limits are ours, the
# failure is described in arXiv 2605.24202.
_CAPTURED = 0.95
# Train step from which V should explain some of the returns; it begins as 0 everywhere.
_BLIND_FROM = 10
# KL divergence of one update, in nats per token, from which it is reported at once: useful updates
# of the recipes move a policy by less than 0.1, those that destroy it by more than 2.
_MOVED = 1.0
# Share of the rollouts that are cut off in one way, which is bought with what levels teach.
_CUT = 0.1
# Cosine of the gradients of two roles from which they pull a policy apart.
_OPPOSED = -0.5


@dataclass(slots=True)
class _Finding:
    """Train steps in a row in which something was wrong with a policy or role."""

    policy: str
    what: str
    cause: str
    first: int
    last: int
    num_steps: int
    """Those among them that updated the policy."""
    is_stalled: bool
    """Whether nothing is learnt; else one role learns at the cost of another, or from noise."""
    num_needed: int
    """Train steps in a row from which it is reported."""

    def __str__(self) -> str:
        steps = f"train steps {self.first} to {self.last}"
        if self.first == self.last:
            steps = f"train step {self.first}"
        return f"{steps}: {self.what}. Likely cause: {self.cause}"


class StallWatch:
    """Finds policies that are not updated, and roles that give one answer to every prompt.

    Train steps that solve nearly all of their levels are left out: there equal rewards are success.
    So are policies whose answers look sound while another policy is updated.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._present: dict[str, _Finding] = {}
        self._past: list[_Finding] = []

    @property
    def is_stalled(self) -> bool:
        """Whether something has been wrong for `stalled_after` train steps up to the latest one."""
        return any(f.is_stalled and self._is_long(f) for f in self._present.values())

    def warnings(self) -> list[str]:
        """All that lasted for `stalled_after` train steps or more, oldest first."""
        found = [*self._past, *filter(self._is_long, self._present.values())]
        return [str(finding) for finding in sorted(found, key=lambda finding: finding.first)]

    def step(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Take the metrics of a train step; return what now has lasted long enough for a warning.

        Args:
            step: From 1; each is the one after the last.
        """
        wrong = dict(self._moved(metrics)) | dict(self._wrong(metrics))
        wrong |= dict(self._untaught(metrics, wrong)) | dict(self._cut_off(metrics))
        if step >= _BLIND_FROM and metrics.get("rollout/success", 0.0) < _SOLVED:
            wrong |= dict(self._blind(metrics))
        # A policy that a phase does not update shows nothing, neither good nor bad.
        resting = [
            key
            for key, finding in self._present.items()
            if not self._config.updates_policy(finding.policy, step - 1)
        ]
        # What was wrong for too few steps to be reported is forgotten: single bad steps are noise.
        for key in [key for key in self._present if key not in wrong and key not in resting]:
            ended = self._present.pop(key)
            self._past += [ended] if self._is_long(ended) else []
        new: list[str] = []
        for key, (policy, what, cause) in wrong.items():
            old = self._present.get(key)
            first, num = (old.first, old.num_steps) if old else (step, 0)
            # One such update may have destroyed the policy; waiting for more helps nobody.
            needed = 1 if key.startswith("moved") else self._config.stalled_after
            self._present[key] = finding = _Finding(
                policy, what, cause, first, step, num + 1, not key.startswith(_BESIDE), needed
            )
            # Not `>=`: the same warning at every further step would drown the metrics.
            if finding.num_steps == needed:
                new.append(str(finding))
        return new

    def _is_long(self, finding: _Finding) -> bool:
        return finding.num_steps >= finding.num_needed

    def _wrong(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield key, policy, what is wrong and its likely cause."""
        if metrics.get("rollout/success", 0.0) >= _SOLVED:
            return
        trained = [name for name in self._config.models if f"update/{name}/skipped" in metrics]
        is_idle = all(metrics[f"update/{name}/skipped"] for name in trained)
        for name in trained:
            yield from self._captured(name, metrics)
            logged = [key.split("/")[1] for key in metrics if key.endswith("/same_answer")]
            played = [role for role in logged if self._config.policy_of(role) == name]
            if metrics[f"update/{name}/skipped"]:
                cause = next(filter(None, (self._cause(role, metrics) for role in played)), None)
                # Sound answers that all earn the same: while others learn, it may be good enough.
                if cause is not None or is_idle:
                    what = f"the policy {name} was not updated"
                    yield f"skipped {name}", (name, what, cause or self._remedy(name, metrics))
            elif metrics[f"tokens/{name}/learnt"] < _LEAST:
                what = f"the policy {name} learns from none of its tokens"
                yield f"unlearnt {name}", (name, what, self._remedy(name, metrics))
            else:
                for role in played:
                    if metrics[f"role/{role}/same_answer"] >= _SAME:
                        what = f"{_percent(metrics, role, 'same_answer')} of the answers of {role}"
                        what += " are the same one, whatever the prompt"
                        entropy = metrics.get(f"loss/{name}/entropy")
                        shown = "" if entropy is None else f" (entropy {entropy:.2f} nats)"
                        yield f"same {role}", (name, what + shown, self._collapse())

    def _moved(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield the policies that one update has taken far from those that sampled."""
        for name in self._config.models:
            kl = metrics.get(f"loss/{name}/update_kl", 0.0)
            if kl >= _MOVED:
                what = f"one update has moved the policy {name} by {kl:.2g} nats per token"
                rate = learning_rates(self._config)[name]
                yield f"moved {name}", (name, what, _ADVICE["too_far"].format(rate=rate))

    def _cut_off(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield the ways in which many rollouts are cut off."""
        for end, cause in _ADVICE["cut_off"].items():
            share = metrics.get(f"rollout/end/{end}", 0.0)
            if share >= _CUT:
                what = f"{share:.0%} of the rollouts are cut off ({end})".replace("%", " %")
                yield f"cut {end}", ("", what, cause)

    def _untaught(
        self, metrics: Mapping[str, float], wrong: Mapping[str, object]
    ) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield the roles whose candidates never differ, while others learn."""
        # Algorithms that compare whole episodes give every role the credit of the outcome.
        if not self._config.algorithm.is_by_step or metrics.get("rollout/success", 0.0) >= _SOLVED:
            return
        used = {
            key.split("/")[1]: share
            for key, share in metrics.items()
            if key.startswith("role/") and key.endswith("/decisions_used")
        }
        for role, share in used.items():
            name = self._config.policy_of(role)
            has_reason = any(key in wrong for key in (f"skipped {name}", f"same {role}"))
            # One that gives each prompt one answer is sure of it: there is nothing to compare.
            is_sure = metrics[f"role/{role}/one_answer"] >= _SAME
            if share == 0 and any(used.values()) and not has_reason and not is_sure:
                what = f"no decision of {role} has candidates whose rewards differ"
                yield f"untaught {role}", (name or "", what, _ADVICE["untaught"])

    def _blind(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield the policies whose V is worse than the mean of its targets."""
        for name in self._config.models:
            r2 = metrics.get(f"value/{name}/r2")
            if r2 is not None and r2 < 0:
                what = f"V of {name} predicts returns worse than their mean does (R2 {r2:.2f})"
                yield f"value {name}", (name, what, _ADVICE["blind"])

    def _captured(
        self, policy: str, metrics: Mapping[str, float]
    ) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield what speaks for a policy that learns for one of its roles alone."""
        prefix = f"gradient/{policy}/"
        for key, value in metrics.items():
            if not key.startswith(prefix):
                continue
            role, *other, kind = key.removeprefix(prefix).split("/")
            if kind == "share" and value >= _CAPTURED:
                what = f"{value:.0%} of the gradient of {policy} is that of {role}".replace(
                    "%", " %"
                )
                yield (
                    f"roles {key}",
                    (policy, what, f"{role} has captured the policy. {_ADVICE['apart']}"),
                )
            if kind == "cosine" and value <= _OPPOSED:
                what = f"the gradients of {role} and {other[0]} in {policy} are opposed"
                what += f" (cosine {value:.2f})"
                yield (
                    f"roles {key}",
                    (policy, what, f"the roles want different answers. {_ADVICE['apart']}"),
                )

    def _cause(self, role: str, metrics: Mapping[str, float]) -> str | None:
        """Why the answers of a role may all earn the same; None where they look sound."""
        limit = sampling_of(self._config.rollout, role).max_completion_tokens
        if metrics[f"role/{role}/parse_errors"] >= _MOST:
            unreadable = f"{_percent(metrics, role, 'parse_errors')} of the answers of {role}"
            unreadable += " cannot be read"
            if metrics[f"role/{role}/truncated"] >= _MOST:
                return (
                    f"{unreadable}, and {_percent(metrics, role, 'truncated')} are truncated at "
                    f"{limit} tokens. Raise rollout.max_completion_tokens; a model that thinks "
                    "first may do without (chat_template_kwargs = { enable_thinking = false })"
                )
            return (
                f"{unreadable}. Show the form of an answer in the prompt, or let the policy "
                "imitate demonstrations first ([warm_start])"
            )
        if metrics[f"role/{role}/same_answer"] >= _SAME:
            return f"the answers of {role} are all the same. {self._collapse()}"
        return None

    def _remedy(self, policy: str, metrics: Mapping[str, float]) -> str:
        # The account of the tokens says where most of them went.
        where = max(_ADVICE["lost"], key=lambda name: metrics[f"tokens/{policy}/{name}"])
        share = f"{metrics[f'tokens/{policy}/{where}']:.0%}".replace("%", " %")
        limit = self._config.rollout.max_completion_tokens
        rate = learning_rates(self._config)[policy]
        return _ADVICE["lost"][where].format(share=share, limit=limit, rate=rate)

    def _collapse(self) -> str:
        rate = max(learning_rates(self._config).values())
        return (
            f"the policy has collapsed. Lower optimizer.learning_rate (now {rate:g}), or raise "
            "loss.entropy_coefficient, and continue from a checkpoint before that step"
        )


# Findings beside which something is learnt all the same.
_BESIDE = ("roles", "value", "untaught", "moved", "cut")
_ADVICE: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


def _percent(metrics: Mapping[str, float], role: str, name: str) -> str:
    return f"{metrics[f'role/{role}/{name}']:.0%}".replace("%", " %")
