"""What an evaluation does: enough to do it again, or to continue it.

Levels are numbered 0, 1, 2, ...; the number and the root seed decide the level. Where an
environment has few levels, numbers repeat them; `distinct_levels` returns those that do not.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from pettingllms.arguments import check_whole
from pettingllms.env import TextEnv, role_of, roles_of
from pettingllms.errors import InvalidArgument, PettingLLMsError, stated, suggestion
from pettingllms.policies import Sampling, stays_here
from pettingllms.registry import check_kwargs, is_announced, make, recorded_id, spec
from pettingllms.seeding import derive_seed
from pettingllms.trust import FoundName, Name
from pettingllms.types import is_agent

# Name of the variant in which every role is played by its own policy.
MAIN = "main"
# Name of the variant in which every role is played by the next role's policy.
SWAPPED = "swapped"

Price = tuple[float, ...]
"""US dollars per million prompt tokens, per million completion tokens, and, if they have a price of
their own, per million prompt tokens that the server had kept from earlier requests."""

_URL = re.compile(r"@https?://\S+$")


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """What an evaluation plays.

    Every field decides the result, except addresses of servers and prices. All variants play the
    same levels with the same chance.
    """

    env_id: Name
    """Id of the environment, or its source."""
    variants: Mapping[str, Mapping[str, Name]]
    """Variant -> role, or agent -> name of the policy (see `pettingllms.policies.load_policy`). An
    agent's own comes before that of its role."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `pettingllms.make`, as JSON data."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `reset`, as JSON data."""
    sampling: Mapping[str, Sampling] = field(default_factory=dict[str, Sampling])
    """Role -> how its completions are drawn; policies' own defaults where a role is left out."""
    seed: int = 0
    """Root seed of levels and of everything that policies draw."""
    num_levels: int = 100
    """Levels, at least 1."""
    level_numbers: Sequence[int] | None = None
    """The number of each level, increasing; None: 0, 1, 2, ... See `with_distinct_levels`."""
    num_wanted: int | None = None
    """Levels that were asked for, if the environment has fewer; None: it has enough."""
    num_samples: int = 1
    """Plays of every level, at least 1; pass@k is known up to this k."""
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """Policy -> what its tokens cost."""

    def __post_init__(self) -> None:
        """Check the numbers; a source is kept in its absolute form.

        Raises:
            InvalidArgument: If one is out of its range, or there is no variant.
        """
        if isinstance(self.env_id, str):  # what a file has is absolute already
            object.__setattr__(self, "env_id", recorded_id(self.env_id))
        for name in ("num_levels", "num_samples"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), 1))
        numbers = self.level_numbers
        if numbers is not None and len(set(numbers)) != self.num_levels:
            allowed = f"num_levels={self.num_levels} different numbers"
            raise InvalidArgument("level_numbers", numbers, allowed)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidArgument("seed", self.seed, "an integer")
        if not self.variants:
            raise InvalidArgument("variants", self.variants, "at least one variant")
        for price in self.prices.values():
            if len(price) not in (2, 3) or not all(0 <= one < math.inf for one in price):
                raise InvalidArgument("prices", price, "2 or 3 finite numbers of at least 0")

    @property
    def needs_trust(self) -> bool:
        """Whether a folder with this plan must be trusted before it is continued."""
        names = map(str, self.policies())
        return not (is_announced(str(self.env_id)) and all(map(stays_here, names)))

    @property
    def num_episodes(self) -> int:
        """Episodes of all variants together."""
        return len(self.variants) * self.num_levels * self.num_samples

    def policies(self) -> tuple[Name, ...]:
        """The names of all policies, each once."""
        return tuple(
            dict.fromkeys(name for variant in self.variants.values() for name in variant.values())
        )

    def episodes(self) -> Iterator[EpisodeSpec]:
        """Yield all episodes, level by level."""
        # Where a run stops early, the levels that it has are whole, and variants pair up.
        for level in self.level_numbers or range(self.num_levels):
            for sample in range(self.num_samples):
                for variant in self.variants:
                    yield episode_spec(self.seed, variant, level, sample)

    def make_env(self) -> TextEnv[Any]:
        """The environment, and make sure that it fits the plan.

        Raises:
            UnknownEnvironment: If it is not installed.
            InvalidArgument: If it refuses an argument or option, would begin part of the way along
                a solution, or a variant does not name exactly its roles.
        """
        env: TextEnv[Any] = make(self.env_id, checks=False, **self.env_kwargs)
        # Levels that begin near their solution are a curriculum: their success says nothing here.
        if env.solved_share:
            raise InvalidArgument(
                "solved_share", env.solved_share, "0: an evaluation plays whole levels"
            )
        roles = roles_of(env)
        for variant in self.variants.values():
            check_assignment(env, variant)
        check_roles(roles, self.sampling)
        # One reset now: an option that is refused must not show after an hour, in every episode.
        env.reset(seed=episode_spec(self.seed, MAIN, 0, 0).level_seed, options=self.options)
        return env

    def with_distinct_levels(self, env: TextEnv[Any]) -> EvaluationPlan:
        """The plan with as many levels that differ up to symmetry, each drawn once.

        If the environment has fewer, the plan has those, and `num_wanted` the number asked for.

        Args:
            env: What `make_env` returned.
        """
        numbers = tuple(distinct_levels(env, self.seed, self.num_levels, self.options))
        if numbers == tuple(range(self.num_levels)):
            return self
        wanted = self.num_levels if len(numbers) < self.num_levels else None
        return replace(self, num_levels=len(numbers), level_numbers=numbers, num_wanted=wanted)

    def with_policies(self, names: Mapping[str, str]) -> EvaluationPlan:
        """The plan with other addresses of servers.

        Args:
            names: Role -> name of its policy, of the same kind and model as in the plan.

        Raises:
            InvalidArgument: If a name differs in more than the address.
        """
        moved: dict[str, str] = {}
        for role, name in names.items():
            known = str(self.variants[MAIN].get(role, ""))
            # A server may come back elsewhere; another model would mix two policies in a run.
            is_same = _URL.sub("", known) == _URL.sub("", name)
            if not is_same or moved.get(known, name) != name:
                raise InvalidArgument(
                    f"policy of {role}",
                    name,
                    f"{known} of the interrupted run (its address may differ)",
                    "Evaluate another policy in a run of its own.",
                )
            moved[known] = name
        variants = {
            variant: {role: moved.get(str(name), name) for role, name in assignment.items()}
            for variant, assignment in self.variants.items()
        }
        prices = {moved.get(name, name): price for name, price in self.prices.items()}
        return replace(self, variants=variants, prices=prices)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON data."""
        variants = {variant: names_of(assignment) for variant, assignment in self.variants.items()}
        return asdict(replace(self, env_id=str(self.env_id), variants=variants))

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], file: Path, *, trust: bool = False
    ) -> EvaluationPlan:
        """The plan that `to_json` gave.

        Args:
            data: The plan.
            file: Where it was read.
            trust: Whether the file may name code and servers; see `pettingllms.trust`.

        Raises:
            InvalidArgument: If the data is not that of a plan.
            TypeError: A part of it is of another kind.
        """
        known = {entry.name for entry in fields(cls)}
        if not {"env_id", "variants"} <= set(data) <= known:
            raise InvalidArgument("plan", sorted(data), "the fields " + ", ".join(sorted(known)))
        given = dict(data)
        check_kwargs(data.get("env_kwargs", {}), data.get("options", {}))
        given["env_id"] = FoundName(data["env_id"], str(file), trust)
        given["variants"] = {
            variant: {role: FoundName(name, str(file), trust) for role, name in assignment.items()}
            for variant, assignment in data["variants"].items()
        }
        given["sampling"] = {
            role: Sampling(**cast(Any, {**values, "stop": tuple(values.get("stop", ()))}))
            for role, values in data.get("sampling", {}).items()
        }
        if given.get("level_numbers") is not None:
            given["level_numbers"] = tuple(given["level_numbers"])
        given["prices"] = {n: tuple(map(float, p)) for n, p in data.get("prices", {}).items()}
        return cls(**given)


def check_roles(names: Sequence[str], given: Mapping[str, Any]) -> None:
    """Check that a mapping names roles of a team only.

    Raises:
        InvalidArgument: If it names something else.
    """
    for role in given:
        if role not in names:
            raise InvalidArgument(
                "role",
                role,
                "the roles of this team: " + ", ".join(names) + suggestion(role, names),
            )


def names_of(assignment: Mapping[str, Name]) -> dict[str, str]:
    """Role -> name of its policy, to be shown or written."""
    return {role: str(name) for role, name in assignment.items()}


def check_assignment(env: TextEnv[Any], assignment: Mapping[str, Name]) -> None:
    """Check that an assignment names a policy for every agent of a team, and for nobody else.

    Raises:
        InvalidArgument: If it does not.
    """
    roles = roles_of(env)
    check_roles((*roles, *env.possible_agents), assignment)
    for agent in env.possible_agents:
        if agent not in assignment and role_of(agent) not in assignment:
            raise InvalidArgument(
                "policies",
                names_of(assignment),
                "one policy per role of the team: " + ", ".join(roles),
            )


def policy_of(assignment: Mapping[str, Any], agent: str) -> Any:
    """What an assignment has for an agent: its own, or that of its role."""
    return assignment[agent] if agent in assignment else assignment[role_of(agent)]


def policies_of(assignment: Mapping[str, str], role: str) -> str:
    """The names of the policies that play a role, in words; empty when unknown."""
    names = [n for key, n in assignment.items() if role == (role_of(key) if is_agent(key) else key)]
    return ", ".join(dict.fromkeys(names))


def swapped(assignment: Mapping[str, Name]) -> dict[str, Name]:
    """An assignment in which every role is played by the next role's policy.

    Raises:
        InvalidArgument: If all roles have the same policy, so that nothing would change.
    """
    names = list(assignment.values())
    # By name: two roles with one policy would swap nothing, at twice the cost.
    if len(set(map(str, names))) < 2:
        raise InvalidArgument(
            "swap", names_of(assignment), "a team with at least two different policies"
        )
    return dict(zip(assignment, [*names[1:], names[0]], strict=True))


def held_out_kwargs(env_id: Name, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an environment with `split="test"`, if it has splits and none is given.

    Raises:
        UntrustedName: If a file names a source, and is not trusted.
        UnknownEnvironment: If there is no such id.
        EnvironmentNotLoadable: If its package cannot be imported.
    """
    found = spec(env_id)
    has_splits = "split" in inspect.signature(found.load()).parameters
    is_given = "split" in kwargs or "split" in found.kwargs
    return {**kwargs, "split": "test"} if has_splits and not is_given else dict(kwargs)


# Repeats in a row, plus one for every ten levels found, after which an environment counts as
# having no more levels. One that makes up 1 % of the draws is then missed with probability 0.7 %.
PATIENCE = 500


class EpisodeSpec(NamedTuple):
    """One episode of a plan: who plays, on which level, with which chance."""

    variant: str
    """Name of the assignment of policies that plays."""
    level: int
    """Number of the level, from 0."""
    sample: int
    """Number of the play of this level, from 0."""
    level_seed: int
    """Seed the environment is reset with."""
    seed: int
    """Seed of everything that policies draw in the episode."""


def level_seed(seed: int, level: int) -> int:
    """The seed of a held-out level: the same in every evaluation with this root seed."""
    return derive_seed(seed, "held-out level", level)


def episode_spec(seed: int, variant: str, level: int, sample: int) -> EpisodeSpec:
    """An episode of an evaluation; variants differ in who plays, not in levels or chance."""
    # Neither the variant nor who plays enters: what differs between variants is the policies alone.
    chance = derive_seed(seed, "held-out", level, sample)
    return EpisodeSpec(variant, level, sample, level_seed(seed, level), chance)


def begun(env: TextEnv[Any], seed: int, options: Mapping[str, Any] | None = None) -> TextEnv[Any]:
    """A fork of an environment at the start of a level.

    Raises:
        PettingLLMsError: Its code cannot make the level.
    """
    fork = env.fork()
    with stated(PettingLLMsError, f"{type(env).__name__} cannot make a level"):
        fork.reset(seed=seed, options=options)
    return fork


def distinct_levels(
    env: TextEnv[Any], seed: int, num_levels: int, options: Mapping[str, Any]
) -> dict[int, str]:
    """The numbers of the first levels that differ up to symmetry (`TextEnv.level_hash`).

    Args:
        env: The environment; a fork of it is reset.
        seed: Root seed of the evaluation.
        num_levels: How many are wanted, at least 1.
        options: Options of `reset`.

    Returns:
        [at most `num_levels`] increasing numbers with these hashes; fewer if the environment seems
        to have no more.
    """
    found: dict[str, int] = {}
    number = num_repeats = 0
    while len(found) < num_levels and num_repeats < PATIENCE + len(found) // 10:
        content = begun(env, level_seed(seed, number), options).level_hash()
        num_repeats = num_repeats + 1 if content in found else 0
        found.setdefault(content, number)
        number += 1
    return {number: content for content, number in found.items()}


def manifest_of(initial_state_hashes: Iterable[str]) -> str:
    """16 hexadecimal digits that identify a list of levels, by their content and order."""
    return hashlib.sha256("\n".join(initial_state_hashes).encode("ascii")).hexdigest()[:16]
