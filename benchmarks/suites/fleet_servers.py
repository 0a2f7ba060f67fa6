"""Does the planner of fleets predict train steps with vLLM servers? Fitted to one setting.

    VLLM_PYTHON benchmarks/suites/fleet_servers.py

Needs vLLM, on a CPU too, and two cores: servers compute on one of them, the trainer on the other.
Two servers share their core, so that each is planned with half of its speed. A team of one tiny
policy is warmed up once; with a learning rate near zero it then writes alike in every step. Engine,
update and environment are fitted to one setting, in which the server answers one batch after
another; the train steps of all settings are planned from that and measured, in turn. Written are
medians over rounds, each with a fit of its own, of the medians of the measured steps. Times are
wall times: the machine should have nothing else to do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import measuring
from fleet import compared, planned, taken
from trainer_overlap import CONFIG, STEPS, TEAM, run, served

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.fleet.here import Here, Watch, measured_here
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import RunEnvironment, make_environments

NAME = "team"


class Setting(NamedTuple):
    """What of a run is varied."""

    num_servers: int
    is_continuous: bool
    is_ahead: bool

    def __str__(self) -> str:
        servers = "one server" if self.num_servers == 1 else f"{self.num_servers} servers"
        asked = "each goes on" if self.is_continuous else "one batch after another"
        return f"{servers}, {asked}, {'one step ahead' if self.is_ahead else 'in turn'}"


SETTINGS = [
    Setting(num, is_continuous, is_ahead)
    for num in (1, 2)
    for is_continuous in (False, True)
    for is_ahead in (False, True)
]
"""The first is fitted."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all settings, predict them from the first, and write the result."""
    parser = measuring.parser_of("fleet_servers", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="train steps of a setting and round")
    options = parser.parse_args(arguments)
    result = measuring.frame("fleet_servers", [0])
    result["hardware"] = "Linux x86_64, 2 cores, wall time: one for servers, one for the trainer"
    with tempfile.TemporaryDirectory() as folder:
        result["settings"] = settings(Path(folder), options.rounds, options.steps)
    measuring.write(result, options.output)
    print(*result["settings"], sep="\n")


def settings(folder: Path, num_rounds: int, num_steps: int) -> list[dict[str, Any]]:
    """Return the train steps of all settings, predicted and measured."""
    run(["warm-start", CONFIG, "--output-dir", str(folder / "team")], TEAM, NAME)
    model, cores = folder / "team" / "policies" / NAME, sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(served(model, folder / f"server-{number}.log", cores[-1]))
            for number in range(2)
        ]
        os.sched_setaffinity(0, cores[:1])
        configs = {one: _config(model, urls, one) for one in SETTINGS}
        environments = make_environments(configs[SETTINGS[0]])
        planned_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        measured_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        for _ in range(num_rounds):
            fitted = measured_here(configs[SETTINGS[0]], environments, num_steps=num_steps)
            for one, config in configs.items():
                planned_s[one].append(_planned(config, one, fitted, environments[0]))
                with waiting(one):
                    steps = taken(config, environments, num_steps, _watch(one, config))
                measured_s[one].append(median(steps))
                print(one, planned_s[one][-1], measured_s[one][-1], flush=True)
    return [{"setting": str(one), **compared(planned_s[one], measured_s[one])} for one in SETTINGS]


def _config(model: Path, urls: Sequence[str], setting: Setting) -> Config:
    flags = [flag.format(name=NAME) for flag in STEPS]
    flags += [f"--policies.{NAME}.model={model}", f"--rollout.max-staleness={setting.is_ahead:d}"]
    return load_config(
        CONFIG, [*flags, f"--policies.{NAME}.endpoints", *urls[: setting.num_servers]]
    )


@contextlib.contextmanager
def waiting(setting: Setting) -> Iterator[None]:
    """Let the trainer and the planner join requests where the setting does."""
    with contextlib.ExitStack() as stack:
        if not setting.is_continuous:
            stack.enter_context(mock.patch.object(Config, "is_continuous", False))
        yield


def _watch(setting: Setting, config: Config) -> Callable[[PolicyPool], PolicyPool]:
    return (lambda pool: pool) if setting.is_continuous else Watch(config, 0).watched


def _planned(config: Config, setting: Setting, fitted: Here, environment: RunEnvironment) -> float:
    """Return the planned train step; servers on one core have a share of it each."""
    engines = {
        name: speed._replace(
            **{
                field: setting.num_servers * getattr(speed, field)
                for field in ("request_s", "prompt_s", "iteration_s", "token_s", "cache_s")
            }
        )
        for name, speed in fitted.speeds.engines.items()
    }
    slower = fitted._replace(speeds=fitted.speeds._replace(engines=engines))
    with waiting(setting):
        return planned(config, slower, environment, Fleet((setting.num_servers,), (1,)))


if __name__ == "__main__":
    main()
