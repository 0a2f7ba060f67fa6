"""A team environment behind an OpenEnv server, and the client to it.

```python
app = create_server_app("plan_path_v0", team="tool-planner")     # any ASGI server runs it
with TeamClient(base_url="http://localhost:8000").sync() as env:
    result = env.reset(seed=7)
    while not result.done:
        text = policies[result.observation.agent](result.observation.text)
        result = env.step(TeamAction(text=text))
```

One server plays every role: an observation says which agent acts next.
"""

from __future__ import annotations

from typing import Any, cast

from pettingllms.adapters.optional import require
from pettingllms.errors import InvalidArgument, OrderError
from pettingllms.registry import make, spec
from pettingllms.types import to_jsonable


def _library(module: str) -> Any:
    return require(module, "The OpenEnv adapter", "openenv")


# At the import, unlike adapters that only call a library: its classes are our base classes.
_server: Any = _library("openenv.core.env_server")
_client: Any = _library("openenv.core.env_client")
_client_types: Any = _library("openenv.core.client_types")


class TeamAction(_server.Action):
    """An agent's action."""

    text: str
    """The agent's text; any text is legal."""
    agent: str = ""
    """Who wrote it. Empty: the agent that acts now; another agent's name is an error."""


class TeamObservation(_server.Observation):
    """What the agent reads that acts next, and what the last action earned.

    `reward` is the reward of the agent that acted last (None after `reset`), `done` whether the
    episode has ended.
    """

    agent: str
    """The agent that acts next; the one that acted last when the episode has ended."""
    text: str
    """Its observation."""
    messages: list[dict[str, str]]
    """The same as chat messages."""
    rewards: dict[str, float]
    """Agent -> reward of the last action."""
    terminated: bool
    """Whether the episode ended because the task was solved or failed."""
    truncated: bool
    """Whether the episode ended because its turns were used up."""
    info: dict[str, Any]
    """`infos` of the agent that acted last (of the first agent after `reset`)."""


class TeamState(_server.State):
    """The state of an episode; `episode_id` and `step_count` are OpenEnv's."""

    seed: int
    """Seed of the episode."""
    turn: int
    """Turns played."""
    agents: list[str]
    """All agents of the team."""
    state_hash: str
    """Identity of the environment's state."""


class TeamEnvironment(_server.Environment):
    """The server's side: a `TextEnv` in OpenEnv's terms.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        **kwargs: Arguments of the environment.
    """

    # OpenEnv serves several clients at a time only where the environment says that it can.
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        super().__init__()
        self._env = make(env_id, checks=False, **kwargs)
        self._episode_id: str | None = None
        self._num_steps = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> TeamObservation:
        """Start a new episode; return the first agent's observation."""
        self._env.reset(seed=seed, options=options)
        self._episode_id, self._num_steps = episode_id, 0
        return self._observation(self._env.agent_selection, reward=None)

    def step(self, action: TeamAction, timeout_s: float | None = None) -> TeamObservation:
        """Play the selected agent's action.

        Raises:
            OrderError: Before `reset` and after the end of the episode.
            InvalidArgument: If the action names an agent that does not act now.
        """
        env = self._env
        if env.episode_seed is None or self._has_ended():
            raise OrderError("step was called before reset or after the end; call reset first")
        agent = env.agent_selection
        if action.agent not in ("", agent):
            raise InvalidArgument("agent", action.agent, f"{agent}, which acts now, or empty")
        env.step(action.text)
        self._num_steps += 1
        return self._observation(agent, reward=env.rewards[agent])

    @property
    def state(self) -> TeamState:
        """The state of the episode.

        Raises:
            OrderError: Before `reset`.
        """
        env = self._env
        # First: it refuses to be asked before `reset`, where pydantic would complain of the seed.
        state_hash = env.state_hash()
        return TeamState(
            episode_id=self._episode_id,
            step_count=self._num_steps,
            seed=env.episode_seed,
            turn=env.turn,
            agents=list(env.possible_agents),
            state_hash=state_hash,
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _has_ended(self) -> bool:
        env = self._env
        return any(env.terminations.values()) or any(env.truncations.values())

    def _observation(self, actor: str, reward: float | None) -> TeamObservation:
        env = self._env
        done = self._has_ended()
        # After the end nobody acts, and clients still read an observation.
        agent = actor if done else env.agent_selection
        return TeamObservation(
            done=done,
            reward=reward,
            agent=agent,
            text=str(env.observe(agent)),
            messages=env.messages(agent),
            rewards=dict(env.rewards),
            terminated=env.terminations[actor],
            truncated=env.truncations[actor],
            # Infos may hold tuples and numbers of numpy, which pydantic does not send.
            info=_json_data(env.infos[actor]),
        )


class TeamClient(_client.EnvClient):
    """The client's side; `TeamClient(base_url=...).sync()` is the blocking form."""

    def _step_payload(self, action: TeamAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        reward, done = payload.get("reward"), payload.get("done", False)
        observation = TeamObservation(**payload["observation"], reward=reward, done=done)
        return _client_types.StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> TeamState:
        return TeamState(**payload)


def create_server_app(env_id: str, *, max_concurrent_envs: int = 64, **kwargs: Any) -> Any:
    """A FastAPI application that serves an environment; every client has its own episode.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        max_concurrent_envs: Maximum number of concurrent clients.
        **kwargs: Arguments of the environment.

    Raises:
        UnknownEnvironment: If there is no such environment.
        InvalidArgument: If the environment refuses an argument.
    """
    spec(env_id)
    make(env_id, **kwargs).close()  # a wrong argument fails now, not at the first client
    return _server.create_app(
        lambda: TeamEnvironment(env_id, **kwargs),
        TeamAction,
        TeamObservation,
        env_name=env_id,
        max_concurrent_envs=max_concurrent_envs,
        state_cls=TeamState,
    )


def _json_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_data(part) for key, part in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [_json_data(part) for part in cast(list[Any], value)]
    return to_jsonable(value)
