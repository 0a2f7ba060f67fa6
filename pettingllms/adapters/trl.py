"""One role of a team as an environment of TRL's `GRPOTrainer` (`environment_factory`).

```python
factory = environment_factory("plan_path_v0", agent="planner_0", partners={"tool": "oracle"})
trainer = GRPOTrainer(
    model=model, args=args,
    train_dataset=datasets.Dataset.from_list(rows(seeds=range(1000))),
    environment_factory=factory,
)
```

The model acts by calling the tool `act`. TRL trains this one role; its team-mates are scripted or
functions. This module needs neither TRL nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pettingllms.adapters.gymnasium import Partner, SingleAgentView, make_single
from pettingllms.errors import InvalidArgument, OrderError

# What the tool answers after the end.
ENDED = "The episode has ended."


class ToolEnvironment:
    """One episode at a time, played through the tool `act`.

    TRL makes every public method except `reset` and `get_reward` a tool, so there is one: `act`.

    Args:
        view: The single-agent view that is played.
    """

    def __init__(self, view: SingleAgentView) -> None:
        self._view = view
        self._return: float | None = None
        self._has_ended = True

    def reset(self, *, seed: int | None = None, **row: Any) -> str:
        """Start the episode of a data set row and return what the agent reads.

        Args:
            seed: The row's column `seed`, so that all completions of a group play the same level.
            **row: Further columns, which TRL passes too; `options` goes to the environment.

        Raises:
            InvalidArgument: If the row has no seed.
        """
        if seed is None:
            raise InvalidArgument(
                "seed", seed, "a column `seed` in the data set", "Make it with `rows`."
            )
        observation, _ = self._view.reset(seed=seed, options=row.get("options"))
        self._return, self._has_ended = 0.0, False
        return str(observation)

    def act(self, text: str) -> str:
        """Say something in the game. The answer is what you see next.

        Args:
            text: Your answer, in the form that the instructions ask for.

        Returns:
            The new situation, or that the episode has ended.
        """
        if self._has_ended:
            return ENDED
        observation = self._play(text)
        return ENDED if self._has_ended else observation

    def get_reward(self) -> float:
        """The agent's return of the episode.

        A model that stops calling the tool has said nothing for the rest of the episode: the
        remaining turns are played with empty texts, so stopping is never better than silence.

        Raises:
            OrderError: Before the first `reset`.
        """
        if self._return is None:
            raise OrderError("get_reward was called before reset; call reset(seed=...) first")
        while not self._has_ended:
            self._play("")
        return self._return

    def _play(self, text: str) -> str:
        observation, reward, terminated, truncated, _ = self._view.step(text)
        self._return = (self._return or 0.0) + reward
        self._has_ended = terminated or truncated
        return str(observation)


def environment_factory(
    env_id: str,
    agent: str | None = None,
    partners: Mapping[str, Partner] | None = None,
    **kwargs: Any,
) -> Callable[[], ToolEnvironment]:
    """The value for `GRPOTrainer(environment_factory=...)`.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        agent: The agent that is trained. Left out: the one agent of `team="single"`.
        partners: Agent or role -> how the others are played; see `SingleAgentView`.
        **kwargs: Arguments of the environment; `observation_mode` is `"delta"` by default, since
            TRL keeps the conversation.

    Raises:
        UnknownEnvironment: If there is no such environment.
        InvalidArgument: If an argument is refused.
    """
    # TRL keeps the chat: full observations would repeat the rules in every turn.
    arguments = {"observation_mode": "delta", **kwargs}

    def make() -> ToolEnvironment:
        return ToolEnvironment(make_single(env_id, agent, partners, **arguments))

    make()  # wrong arguments fail now, not in the middle of a trainer's set-up
    return make


def rows(
    seeds: Iterable[int], instruction: str = "Act with the tool `act` until the episode ends.\n\n"
) -> list[dict[str, Any]]:
    """The rows of a data set, one per seed; `reset` adds the observation to the prompt.

    Args:
        seeds: Seeds of the levels.
        instruction: What the user message begins with.
    """
    prompt = [{"role": "user", "content": instruction}]
    return [{"prompt": prompt, "seed": seed} for seed in seeds]
