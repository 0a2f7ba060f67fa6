"""A team as a PettingZoo parallel environment: one step is one stage of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pettingzoo import ParallelEnv

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidAction, OrderError
from pettingllms.types import TextSpace


class ParallelView(ParallelEnv[str, str, str]):
    """A PettingZoo `ParallelEnv` of a team.

    One `step` plays one stage. The agents of the stage act, all of them at once; `acting` and
    `infos[agent]["acts"]` say which they are. Actions of other agents are ignored. In a team of one
    stage (such as coder and tester) all agents act in every step; in a team of several stages
    (tool, then planner) a turn takes several steps, because the later agent reads what the earlier
    one wrote.

    Unlike PettingZoo's `aec_to_parallel` it also plays episodes that end with an agent that is not
    the last of its stage: the actions of the others are then no longer used. Unlike its
    `turn_based_aec_to_parallel` it leaves the infos of the environment untouched.

    Args:
        env: A raw or wrapped environment.
    """

    metadata: dict[str, Any]

    def __init__(self, env: Any) -> None:
        raw = cast(TextEnv[Any], env.unwrapped)
        self.env = raw
        # PettingZoo's conversions between its two APIs ask for this.
        self.metadata = {**raw.metadata, "is_parallelizable": True}
        self.render_mode = raw.render_mode
        self.possible_agents = list(raw.possible_agents)
        self.agents: list[str] = []

    @property
    def acting(self) -> tuple[str, ...]:
        """The agents whose texts the next `step` plays, in playing order."""
        return self.env.acting() if self.agents else ()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Start a new episode; return all agents' observations and infos."""
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._observations(), self._infos()

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[
        dict[str, str],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one stage; return observations, rewards, terminations, truncations, infos.

        Args:
            actions: Agent -> text, at least for the agents in `acting`.

        Raises:
            OrderError: Before `reset` and after the end of the episode.
            InvalidAction: If an acting agent's text is missing; nothing is played then.
        """
        if not self.agents:
            raise OrderError("step was called before reset or after the end; call reset first")
        # Taken before the first step, after which others act.
        acting = self.acting
        for agent in acting:
            if actions.get(agent) is None:  # whoever wraps this view may send numbers
                raise InvalidAction(f"{agent} acts now and needs a text; got none")
        env, rewards = self.env, dict.fromkeys(self.possible_agents, 0.0)
        for agent in acting:
            env.step(actions[agent])
            for other, reward in env.rewards.items():
                rewards[other] += reward
            if env.terminations[agent] or env.truncations[agent]:
                # The parallel API lists no agent that has ended, and a team ends as a whole.
                self.agents = []
                break
        terminations, truncations = dict(env.terminations), dict(env.truncations)
        return self._observations(), rewards, terminations, truncations, self._infos()

    def _observations(self) -> dict[str, str]:
        return {agent: self.env.observe(agent) for agent in self.possible_agents}

    def _infos(self) -> dict[str, dict[str, Any]]:
        # Copies: a key of ours must not enter what the environment keeps.
        acting = self.acting
        return {agent: {**info, "acts": agent in acting} for agent, info in self.env.infos.items()}

    def observation_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        return self.env.action_space(agent)

    def state(self) -> Any:
        """The immutable state value of the environment."""
        return self.env.state()

    def render(self) -> Any:
        """Render the present state in the environment's render mode."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
