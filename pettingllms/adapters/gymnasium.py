"""One role of a team as a Gymnasium environment, and our ids in the registries of others."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, cast

import gymnasium
import pettingzoo
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

from pettingllms.arguments import check_whole
from pettingllms.env import TextEnv, role_of
from pettingllms.errors import InvalidArgument, OrderError, suggestion
from pettingllms.plugins import own_ids
from pettingllms.registry import make, on_new_ids, spec
from pettingllms.types import Observation, TextSpace

Partner = str | Callable[[str], str]
"""How another agent is played: the name of a scripted policy, or observation -> text."""


class SingleAgentView(gymnasium.Env[str, str]):
    """A Gymnasium environment in which one agent acts and its team-mates are scripted.

    An episode is the same as in the AEC environment. `step` plays the agent's text, then lets the
    team-mates act until it is the agent's turn again or the episode has ended; the reward is the
    agent's reward over that span.

    Should a team-mate end the episode before the agent's first turn, the first `step` plays nothing
    and reports the end.

    For many at once use `make_vector`. Gymnasium's shared memory cannot carry texts, so
    `gymnasium.make_vec(..., vectorization_mode="async")` is refused unless it is given
    `vector_kwargs={"shared_memory": False}`.

    Args:
        env: A raw or wrapped environment.
        agent: The agent to be played; may be left out when the team has one agent.
        partners: Agent or role -> how it is played, for all other agents.

    Raises:
        InvalidArgument: If an agent is unknown or a team-mate has no partner.
    """

    metadata: dict[str, Any]
    _spec: EnvSpec | None = None

    def __init__(
        self, env: Any, agent: str | None = None, partners: Mapping[str, Partner] | None = None
    ) -> None:
        raw = cast(TextEnv[Any], env.unwrapped)
        agents = raw.possible_agents
        if agent is None and len(agents) == 1:
            agent = agents[0]
        if agent not in agents:
            raise InvalidArgument("agent", agent, ", ".join(agents) + suggestion(agent, agents))
        self.env = raw
        self.agent = agent
        self.metadata = raw.metadata
        self.render_mode = raw.render_mode
        self.observation_space = raw.observation_space(agent)
        self.action_space = raw.action_space(agent)
        self._partners = {
            other: self._partner(other, partners or {}) for other in agents if other != agent
        }
        # Scripted team-mates draw from it; `reset` seeds it: equal seeds meet equal ones.
        self._rng = random.Random(0)
        self._reward_of_reset = 0.0
        self._is_over = True

    def _partner(self, agent: str, partners: Mapping[str, Partner]) -> Partner:
        partner = partners.get(agent, partners.get(role_of(agent)))
        if partner is None or (
            isinstance(partner, str) and partner not in self.env.scripted_policies
        ):
            known = ", ".join(map(repr, self.env.scripted_policies)) or "none"
            raise InvalidArgument(
                f"partners[{agent!r}]",
                partner,
                f"a function from observation to text, or a scripted policy ({known})",
            )
        return partner

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode; return the agent's first observation and info."""
        # Gymnasium's rule: its own generator is seeded, which its checker looks for.
        super().reset(seed=seed)
        self._is_over = True  # until the team-mates, who may raise, have played
        self.env.reset(seed=seed, options=options)
        self._rng = random.Random(self.env.episode_seed)
        self._reward_of_reset = self._play_partners()
        self._is_over = False
        return self.env.observe(self.agent), self._info()

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play the agent's text; return observation, reward, terminated, truncated, info.

        The first reward of an episode includes what team-mates earned before it. An episode of one
        turn is never truncated.

        Raises:
            OrderError: Before `reset`, after the end of the episode, and after a failed call, which
                may have left it at a team-mate's turn.
        """
        if self._is_over:
            told = "step was called before reset, after the end or after a call that failed"
            raise OrderError(f"{told}; call reset first")
        env, agent = self.env, self.agent
        reward, self._reward_of_reset = self._reward_of_reset, 0.0
        if not (env.terminations[agent] or env.truncations[agent]):
            env.step(action)
            self._is_over = True  # as in `reset`
            reward += env.rewards[agent] + self._play_partners()
        terminated, truncated = env.terminations[agent], env.truncations[agent]
        if truncated and env.max_turns == 1:
            # Nothing is cut off where one turn is all; Gymnasium refuses an end at once as a limit.
            terminated, truncated = True, False
        self._is_over = terminated or truncated
        return env.observe(agent), reward, terminated, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        # The agent may have no turn between two of our steps: then its info is the one before.
        return copy.deepcopy(self.env.infos[self.agent])

    def _play_partners(self) -> float:
        """Let team-mates act until the agent is selected or all has ended; return its reward."""
        env, reward = self.env, 0.0
        while env.agent_selection != self.agent:
            other = env.agent_selection
            if env.terminations[other] or env.truncations[other]:
                break
            partner = self._partners[other]
            if isinstance(partner, str):
                env.step(env.scripted_action(other, partner, self._rng))
            else:
                env.step(partner(env.observe(other)))
            # Of the last step alone: the sums of PettingZoo's `last` would count spans twice.
            reward += env.rewards[self.agent]
        return reward

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's record of how the view was made, with the most steps of an episode."""
        return self._spec

    @spec.setter
    def spec(self, made: EnvSpec | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        # How many there are depends on the arguments, so that no registration can say it.
        self._spec = copy.copy(made)
        if self._spec is not None:
            self._spec.max_episode_steps = self.env.max_episode_steps

    def render(self) -> Any:
        """Render the present state in the environment's render mode."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


@create_shared_memory.register(TextSpace)
def _refuse_shared_memory(space: TextSpace, n: int = 1, ctx: Any = None) -> Any:
    """Refuse what Gymnasium would do: hand out blanks for texts (its issue 1164)."""
    raise CustomSpaceError(
        f"Gymnasium's shared memory cannot carry the texts of {space}; pass "
        'vector_kwargs={"shared_memory": False} to gymnasium.make_vec, or use '
        "pettingllms.adapters.gymnasium.make_vector"
    )


def make_single(
    env_id: str,
    agent: str | None = None,
    partners: Mapping[str, Partner] | None = None,
    **kwargs: Any,
) -> SingleAgentView:
    """Make the Gymnasium view of an environment; the entry point of `gymnasium.make`.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        agent: The agent to be played. Left out: the one agent of `team="single"`; in an environment
            of teams alone the first, beside team-mates who follow its first scripted policy.
        partners: Agent or role -> how the others are played.
        **kwargs: Arguments of the environment.
    """
    has_teams = "team" in inspect.signature(spec(env_id).load()).parameters
    if agent is None and has_teams:
        kwargs.setdefault("team", "single")
    env, given = make(env_id, checks=False, **kwargs), dict(partners or {})
    if agent is None and not has_teams and env.scripted_policies:
        # Gymnasium's tools make an id without arguments.
        agent, *others = env.possible_agents
        unnamed = [other for other in others if not {other, role_of(other)} & given.keys()]
        given |= dict.fromkeys(unnamed, env.scripted_policies[0])
    return SingleAgentView(env, agent, given)


def make_vector(
    env_id: str, num_envs: int, *, asynchronous: bool = False, **kwargs: Any
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Make many Gymnasium views at once; observations and actions are tuples of texts.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        num_envs: Number of environments, at least 1.
        asynchronous: Whether each environment runs in a separate process. Arguments such as
            partner functions must then be picklable.
        **kwargs: Arguments of `make_single`.

    Raises:
        InvalidArgument: If `num_envs` is below 1.
    """
    num_envs = check_whole("num_envs", num_envs, 1)
    return gymnasium.make_vec(
        gymnasium_spec(env_id),
        num_envs=num_envs,
        vectorization_mode="async" if asynchronous else "sync",
        vector_kwargs={"shared_memory": False} if asynchronous else {},
        **kwargs,
    )


def gymnasium_spec(env_id: str) -> EnvSpec:
    """What Gymnasium's registry says of one of our ids, also where it is not registered."""
    return EnvSpec(
        gymnasium_id(env_id),
        entry_point="pettingllms.adapters.gymnasium:make_single",
        # Its passive checker would wrap the view at every `make`; our tests run the whole one.
        disable_env_checker=True,
        kwargs={"env_id": env_id},
    )


def gymnasium_id(env_id: str) -> str:
    """The Gymnasium id of one of our ids: `plan_path_v0` -> `pettingllms/PlanPath-v0`.

    Different ids have different Gymnasium ids: the `_` before a digit is kept (`a_1` -> `A_1`).
    """
    name, _, version = env_id.rpartition("_v")
    words = (word.capitalize() if word[0].isalpha() else f"_{word}" for word in name.split("_"))
    return f"pettingllms/{''.join(words)}-v{version}"


@cache
def connect() -> None:
    """Register our environments with Gymnasium and PettingZoo, now and in future.

    `pettingllms` calls it: at its import if either library is loaded then, else when the first of
    its names is used.

    Now: those that come with this package. Later: every id that becomes known, see
    `pettingllms.registry.on_new_ids`. Registering stores a name; it imports no environment.
    """
    announce(own_ids())
    on_new_ids(announce)


def announce(ids: Iterable[str]) -> None:
    """Register environments with Gymnasium (single-agent view) and with PettingZoo.

    PettingZoo has a registry since 1.27; with older releases only Gymnasium's is used.

    Args:
        ids: Our ids. Those that are registered already are left as they are.
    """
    zoo: Any = pettingzoo
    for env_id in ids:
        found = gymnasium_spec(env_id)
        # Not `gymnasium.register`, which warns about names that are there already.
        gymnasium.registry.setdefault(found.id, found)
        if hasattr(zoo, "aec_registry"):
            # PettingZoo's own form of ids: namespace, name, -vN.
            zoo_id = "pettingllms/" + env_id.replace("_v", "-v")
            if zoo_id not in zoo.aec_registry:
                zoo.register("aec", zoo_id, partial(make, env_id))
