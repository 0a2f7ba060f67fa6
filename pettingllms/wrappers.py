"""A wrapper around the raw environment: misuse raises a clear error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, OrderError
from pettingllms.types import Constraints, Observation, Snapshot, TextSpace

StateT = TypeVar("StateT")


class ChecksWrapper(OrderEnforcingWrapper[str, str, str | None], Generic[StateT]):
    """A `TextEnv` that refuses calls at the wrong moment and unknown agents, and says why.

    It adds to PettingZoo's order checks those of `fork`, `snapshot`, `restore` and `messages`, and
    keeps forks wrapped. `unwrapped` is the raw environment.

    Args:
        env: The raw environment.
    """

    def __init__(self, env: TextEnv[StateT]) -> None:
        super().__init__(env)
        self.env: TextEnv[StateT] = env
        # Flags that PettingZoo's base class checks: an episode may be under way.
        self._has_reset = self._has_updated = env.episode_seed is not None

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a new episode; see `TextEnv.reset`."""
        self.env.reset(seed=seed, options=options)
        self._has_reset = self._has_updated = True

    def step(self, action: str | None) -> None:
        """Play the selected agent's action; see `TextEnv.step`.

        Raises:
            OrderError: Before `reset`, and when no agent is left.
        """
        self._require_agents("step")
        self.env.step(action)
        self._has_updated = True

    def observe(self, agent: str) -> Observation:
        """What an agent reads now; see `TextEnv.observe`."""
        self._require("observe")
        self._check_agent(agent)
        return self.env.observe(agent)

    def last(self, observe: bool = True) -> Any:
        """Observation, reward, terminated, truncated, info of the selected agent.

        Raises:
            OrderError: As of `step`.
        """
        self._require_agents("last")
        return self.env.last(observe)

    def messages(self, agent: str) -> list[dict[str, str]]:
        """The agent's observation as chat messages; see `TextEnv.messages`."""
        self._require("messages")
        self._check_agent(agent)
        return self.env.messages(agent)

    def constraints(self, agent: str) -> Constraints:
        """What the agent's answer is bound to; see `TextEnv.constraints`."""
        self._require("constraints")
        self._check_agent(agent)
        return self.env.constraints(agent)

    def state(self) -> StateT:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The immutable state value."""
        self._require("state")
        return self.env.state()

    def render(self) -> Any:
        """Render the present state; see `TextEnv.render`."""
        self._require("render")
        return self.env.render()

    def _repr_html_(self) -> str:
        return self.env._repr_html_()

    def fork(self) -> ChecksWrapper[StateT]:
        """An independent, equally wrapped environment in the same state."""
        self._require("fork")
        return type(self)(self.env.fork())

    def snapshot(self) -> Snapshot:
        """The whole dynamic state; see `TextEnv.snapshot`."""
        return self.env.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to the moment of a snapshot; see `TextEnv.restore`."""
        self.env.restore(snapshot)
        self._has_reset = self._has_updated = True

    def scripted_action(self, agent: str, policy: str, rng: random.Random) -> str:
        """What a scripted policy answers; see `TextEnv.scripted_action`."""
        return self.env.scripted_action(agent, policy, rng)

    def observation_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        self._check_agent(agent)
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        self._check_agent(agent)
        return self.env.action_space(agent)

    def _check_agent(self, agent: str) -> None:
        if agent not in self.env.possible_agents:
            raise InvalidArgument("agent", agent, ", ".join(self.env.possible_agents))

    def _require(self, method: str) -> None:
        if not self._has_reset:
            raise OrderError(f"{method} was called before reset; call reset(seed=...) first")

    def _require_agents(self, method: str) -> None:
        self._require(method)
        if not self.env.agents:
            raise OrderError(f"{method} was called after the last agent had left; call reset first")

    def __str__(self) -> str:
        return str(cast(object, self.env))
