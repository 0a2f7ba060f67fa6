"""A whole team as an environment of verifiers: one agent ("seat") per team-mate.

verifiers finds environments as modules that export one `Taskset` and one `Env`. Such a module is:

```python
# plan_path_team.py
from pettingllms.adapters.verifiers import build

Tasks, Team = build("plan_path_v0", num_tasks=1000, team="tool-planner")
__all__ = ["Tasks", "Team"]
```

and is run by `vf-eval plan_path_team --env.planner_0.model ...`. Each agent has its own model,
sampling and trace; on a trace stand the agent's return as reward, and `success` and `turns` as
metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from pettingllms.adapters.optional import require
from pettingllms.arguments import check_whole
from pettingllms.env import TextEnv
from pettingllms.registry import make


def _library(module: str) -> Any:
    return require(module, "The verifiers adapter", "verifiers")


vf: Any = _library("verifiers.v1")
pydantic: Any = _library("pydantic")


class LevelData(vf.TaskData):
    """One level: everything that the environment needs to make it."""

    seed: int
    """Seed of the episode."""


class LevelTask(vf.Task[LevelData]):
    """One level. Its reward is recorded by the environment, which alone knows it."""


class LevelsConfig(vf.TasksetConfig):
    """Which levels there are."""

    first_seed: int = 0
    """Seed of the first level."""
    num_tasks: int = 1000
    """Number of levels; seeds are consecutive."""


def build(
    env_id: str, *, num_tasks: int = 1000, first_seed: int = 0, **kwargs: Any
) -> tuple[Any, Any]:
    """The `Taskset` and the `Env` of a team, for a module that verifiers loads.

    The environment's config has one `AgentConfig` per agent, named like the agent; by default the
    agents chat without tools (the `null` harness in the `subprocess` runtime).

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        num_tasks: Default number of levels.
        first_seed: Default seed of the first level.
        **kwargs: Arguments of the environment; `observation_mode` is `"delta"` by default, since
            verifiers keeps the conversations.

    Raises:
        UnknownEnvironment: If there is no such environment.
        InvalidArgument: If `num_tasks` is below 1, or an argument is refused.
    """
    num_tasks = check_whole("num_tasks", num_tasks, 1)
    arguments = {"observation_mode": "delta", **kwargs}
    agents = make(env_id, checks=False, **arguments).possible_agents
    # Configs are classes: verifiers makes options of its command line from their fields.
    levels_config = pydantic.create_model(
        "LevelsConfig",
        __base__=LevelsConfig,
        num_tasks=(int, num_tasks),
        first_seed=(int, first_seed),
    )
    seat = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    seats: dict[str, Any] = {agent: (vf.AgentConfig, seat) for agent in agents}
    team_config = pydantic.create_model("TeamConfig", __base__=vf.EnvConfig, **seats)

    class Levels(vf.Taskset[LevelTask, levels_config]):
        """Levels with consecutive seeds."""

        def load(self) -> Iterator[Any]:
            start = self.config.first_seed
            for seed in range(start, start + self.config.num_tasks):
                yield LevelTask(LevelData(name=f"{env_id}#{seed}", seed=seed), self.config.task)

    class Team(vf.Env[team_config]):
        """The team's turns as control flow between the agents."""

        async def run(self, task: Any, agents: Any) -> None:
            env = make(env_id, checks=False, **arguments)
            await play_episode(env, task, agents)

    return Levels, Team


async def play_episode(env: TextEnv[Any], task: Any, agents: Any) -> None:
    """Play one level with the agents of verifiers and record what each has earned.

    An agent whose run ends early (a limit on turns or tokens) says nothing from then on.

    Args:
        env: The raw environment.
        task: A `LevelTask`.
        agents: What `Env.run` is given.
    """
    env.reset(seed=task.data.seed)
    returns = dict.fromkeys(env.possible_agents, 0.0)
    seats: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        while not (any(env.terminations.values()) or any(env.truncations.values())):
            agent = env.agent_selection
            *system, user = env.messages(agent)
            # At an agent's first turn, when what it is told as the system prompt is known.
            if agent not in seats:
                prompt = system[0]["content"] if system else None
                own = type(task)(task.data.model_copy(update={"system_prompt": prompt}))
                seats[agent] = await stack.enter_async_context(
                    getattr(agents, agent).interaction(own)
                )
            env.step(await _answer(seats[agent], user["content"]))
            returns = {other: total + env.rewards[other] for other, total in returns.items()}
    for agent, seat in seats.items():
        seat.trace.record_reward("return", returns[agent])
        seat.trace.record_metric("success", float(env.infos[agent]["success"]))
        seat.trace.record_metric("turns", float(env.turn))


async def _answer(seat: Any, text: str) -> str:
    # A seat at its limit must not end the episode of the others: it falls silent.
    if seat.trace.stop_condition is not None:
        return ""
    segment = await seat.turn(text)
    return "" if segment.terminated else str(segment.last_reply)
