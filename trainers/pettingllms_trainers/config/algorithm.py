"""The interface of an algorithm, for code that does not care which one it is.

An algorithm is a table ``[algorithm]`` of a run file: its name and its parameters. Packages
announce theirs by an entry point; see `config.announced`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from pettingllms.errors import suggestion
from pettingllms.plugins import ALGORITHMS, Plugin, installed
from pettingllms_trainers.config.sections import Section
from pettingllms_trainers.types import Decision, RolloutTree, ValueExample


class StepContext(NamedTuple):
    """The train step in which an algorithm is asked."""

    step: int = 0
    """Number of the train step, from 0."""
    memory: Mapping[str, Any] = {}
    """What `Algorithm.remember` returned after the last train step, at first `Algorithm.begin`."""


class Member(NamedTuple):
    """One value that is compared, and the candidates that get its advantage."""

    value: float
    """What is compared, such as a reward or a return; finite."""
    candidates: tuple[tuple[int, int], ...]
    """(decision, candidate) indices into the D decisions of a train step and their candidates."""
    weight: float = 1.0
    """Factor of the advantage; a candidate of several groups gets the weighted sum."""


class Strategy(Protocol):
    """Decides what is played in the episodes of a level.

    One object plays all levels of an environment in a train step, concurrently.
    """

    @property
    def num_together(self) -> int:
        """Players of one call of `play`: all episodes of a level, or 1."""
        ...

    async def play(self, players: Sequence[Any]) -> None:
        """Play episodes of one level to their ends.

        Args:
            players: [num_together] of `rollout.player.Player`, not begun. All that an episode does
                is within its `attempt`, so that a failure of one does not end the others.
        """
        ...


class Algorithm(Section):
    """How episodes are sampled, and which candidates are compared by what.

    A subclass has parameters, which are fields with defaults. It implements the abstract members:
    `strategy` acts during rollouts, `groups` and `advantages` after them. All else has a default.
    """

    name: str
    """Name of an installed algorithm, or package.module:Class of another one."""

    @property
    @abstractmethod
    def episodes_per_level(self) -> int:
        """Episodes that are played of every level of a train step."""

    @property
    @abstractmethod
    def candidates_per_decision(self) -> int:
        """Candidates of a decision, at most."""

    @property
    def usual_candidates(self) -> int:
        """Candidates of most decisions."""
        return self.candidates_per_decision

    def continuations(self, num_decisions: int) -> Sequence[int]:
        """How often an episode is played on to its end after each of its decisions, at most.

        Args:
            num_decisions: Those of the episode, at least 1.
        """
        return [0] * num_decisions

    @abstractmethod
    def strategy(self, context: StepContext) -> Strategy:
        """How the episodes of a level are played."""

    @abstractmethod
    def groups(
        self, played: Sequence[tuple[RolloutTree, Decision]], context: StepContext
    ) -> Iterable[tuple[Hashable, Member]]:
        """Yield the members of groups, each with the key of its group.

        A candidate may be in any number of groups, and at most once in each.

        Args:
            played: [D] decisions of a train step with their trees, in play order. Trees of equal
                `env_seed` are episodes of one level.
        """

    @abstractmethod
    def advantages(self, values: Sequence[float]) -> list[float]:
        """The advantages of the members of a group whose values differ, in their order."""

    def at(self, context: StepContext) -> Algorithm:
        """The algorithm of a train step: this one, unless it chooses among others."""
        return self

    @property
    def scales_by_batch(self) -> bool:
        """Whether advantages are divided by their root mean square over the step, per role."""
        return False

    def begin(self, environments: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
        """The memory of the first train step; see `remember`.

        Args:
            environments: Name to training environment, in which scripted policies may play; none
                if the run has rewards besides the environment's.
            seed: Of the run.
        """
        return {}

    def remember(self, trees: Sequence[RolloutTree], context: StepContext) -> Mapping[str, Any]:
        """The memory of the next train step: plain JSON data, kept in checkpoints."""
        return context.memory

    def metrics(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """Figures of the memory, logged as ``algorithm/<name>`` and described in METRICS.md."""
        return {}

    def says(self, memory: Mapping[str, Any]) -> str:
        """What the memory decides, in a sentence for people; empty: nothing."""
        return ""

    @property
    def named_roles(self) -> tuple[str, ...]:
        """Roles that its parameters name."""
        return ()

    def branches(self, role: str) -> bool:
        """Whether decisions of a role have more than one candidate, if any have."""
        return True

    def compares(self, role: str) -> bool:
        """Whether decisions of a role are compared with anything."""
        return True

    @property
    def is_by_step(self) -> bool:
        """Whether candidates are compared by the reward of their own step alone."""
        return False

    @property
    def trusts_rewards(self) -> bool:
        """Whether rewards count whatever they mean for how an episode ends."""
        return True

    @property
    def sees_size(self) -> bool:
        """Whether multiplying all rewards by a factor changes what is learnt."""
        return False

    @property
    def critic(self) -> ValueConfig | None:
        """How V is learnt; None: there is no V."""
        return None

    def value_examples(
        self, trees: Sequence[RolloutTree], context: StepContext
    ) -> dict[str, list[ValueExample]]:
        """Policy to what its V learns from the rollouts of a train step."""
        return {}


class ValueConfig(Section):
    """V, the expected return from a decision on, predicted from the decision's prompt.

    A small network reads the policy's last hidden state at the end of the prompt, beside an adapter
    if there is one. No gradient of V reaches a policy, so there is no coefficient to balance.
    """

    hidden_size: int = Field(default=128, ge=8)
    """Width of the hidden layer."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of V."""
    num_epochs: int = Field(default=4, ge=1)
    """Passes over the examples per train step."""
    batch_size: int = Field(default=128, ge=1)
    """Examples per optimizer step of V."""
    replay_steps: int = Field(default=0, ge=0)
    """Earlier train steps whose examples V learns from again."""
    path_weight: float = Field(default=0.5, ge=0, le=1)
    """Share of the followed path's return in the target; the rest is the tree backup, the mean over
    the candidates of reward + V."""
    clip: float = Field(default=0.0, ge=0)
    """V moves at most this far from its last prediction per train step (PPO's value clipping); 0:
    any distance."""
    shrink: bool = False
    """Whether predictions shrink towards their mean, by the share of the last step's variance that
    V failed to explain."""
    num_warmup_steps: int = Field(default=0, ge=0)
    """Train steps in which V learns from path returns alone and candidates are compared by their
    rewards alone. V is 0 before its first fit, so none are needed."""

    def is_warming_up(self, context: StepContext) -> bool:
        """Whether V is not to be relied on yet."""
        return context.step < self.num_warmup_steps


DEFAULT = "at_grpo"


def algorithm_names() -> tuple[str, ...]:
    """The names of all installed algorithms, sorted."""
    return tuple(sorted(installed(ALGORITHMS).usable))


def algorithm_class(name: Any) -> type[Algorithm]:
    """Import the class of an algorithm.

    Args:
        name: One of `algorithm_names()`, or ``package.module:Class`` of one that is not announced.

    Raises:
        ValueError: There is no such algorithm, it cannot be imported, or it is announced twice.
    """
    if not isinstance(name, str):
        raise ValueError(f"algorithm.name is {name!r}; it must be a string")
    # Announced twice is refused, as which of the two is meant decides what is learnt.
    announced, refused = installed(ALGORITHMS)
    if name in refused:
        raise ValueError(f"algorithm.name is {name!r}: {refused[name]}")
    plugin = Plugin(name, name, "") if ":" in name else announced.get(name)
    if plugin is None and not announced:
        raise ValueError(
            "no algorithm is installed; in a checkout, run `pip install -e trainers` again: they "
            "are found through the metadata of installed packages"
        )
    if plugin is None:
        names = algorithm_names()
        raise ValueError(
            f"algorithm.name is {name!r}, which is not installed{suggestion(name, names) or '.'} "
            f"There are: {', '.join(names)}"
        )
    try:
        found = plugin.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"algorithm.name is {name!r}: {plugin.value} cannot be imported: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"algorithm.name is {name!r}: {plugin.value} is not an Algorithm")
    return found


def algorithm_of(table: Any) -> Any:
    """The algorithm that a table [algorithm] describes.

    Raises:
        ValueError: Its name is unknown, or a key is not one of its parameters, or a value is not
            allowed.
    """
    if isinstance(table, Algorithm):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f'algorithm is {table!r}; write a table [algorithm] with name = "NAME"')
    name = table.get("name", DEFAULT)
    kind = algorithm_class(name)
    own = _own_parameters(kind)
    for key in table:
        if key != "name" and key not in own:
            others = [other for other in algorithm_names() if key in known_parameters(other)]
            of = f" but of {', '.join(others)}." if others else suggestion(key, own) or "."
            raise ValueError(
                f"algorithm.{key} is not a parameter of {name}{of} Its own are: {', '.join(own)}"
            )
    # The name is a field, too, so that a saved configuration says which algorithm it was.
    return kind.model_validate({**table, "name": name})


def _own_parameters(kind: type[Algorithm]) -> list[str]:
    """The names of the parameters of an algorithm."""
    return [key for key in kind.model_fields if key != "name"]


def known_parameters(name: Any) -> list[str]:
    """The names of the parameters of an algorithm; none of one that cannot be used."""
    try:
        return _own_parameters(algorithm_class(name))
    except ValueError:  # whoever wants to use it is told
        return []


def section_of(parameter: str) -> type[Algorithm] | None:
    """An algorithm with a parameter; None when there is none.

    A key has the same type in all of them, as far as a flag or a message needs it.
    """
    names = (name for name in algorithm_names() if parameter in known_parameters(name))
    return next(map(algorithm_class, names), None)
