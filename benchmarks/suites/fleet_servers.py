"""Does the planner of fleets predict train steps with vLLM servers? Fitted to one setting.

    VLLM_PYTHON benchmarks/suites/fleet_servers.py

Needs vLLM, on a CPU too, and two cores: one for a server, one for the trainer and a second server.
So two servers are measured while the trainer waits for them, not while it learns; the trainer then
runs on either core, and two servers have less than a core each. A team of one
tiny policy is warmed up once; with a learning rate near zero it then writes alike in every step.
Engine, update and environment are fitted to one setting, in which the server answers one batch
after another; the train steps of all settings are planned from that and measured, in turn. Written
are medians over rounds, each with a fit of its own, of the medians of the measured steps. Times are
wall times: the machine should have nothing else to do.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import measuring
from fleet import compared, planned, step_seconds, taken
from trainer_overlap import CONFIG, STEPS, TEAM, run, served

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.fleet.here import Here, Watch, measured_here
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.fleet.simulate import rollouts_on
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
    for is_ahead in (False, True)[: 3 - num]
]
"""The first is fitted."""
ALONE = Setting(1, is_continuous=True, is_ahead=False)
SERVERS = (1, 2, 4, 8, 16)
"""Rollouts are simulated on so many, with a core of their own each."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all settings, predict them from the first, and write the result."""
    parser = measuring.parser_of("fleet_servers", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="train steps of a setting and round")
    options = parser.parse_args(arguments)
    result = measuring.frame("fleet_servers", [0])
    result["hardware"] = "Linux x86_64, 2 cores, wall time"
    with tempfile.TemporaryDirectory() as folder:
        result |= settings(Path(folder), options.rounds, options.steps)
    measuring.write(result, options.output)
    print(result)


def settings(folder: Path, num_rounds: int, num_steps: int) -> dict[str, Any]:
    """Return the train steps of all settings, planned and measured, and rollouts by servers."""
    run(["warm-start", CONFIG, "--output-dir", str(folder / "team")], TEAM, NAME)
    model, cores = folder / "team" / "policies" / NAME, sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(served(model, folder / f"server-{number}.log", core))
            for number, core in enumerate((cores[-1], cores[0]))
        ]
        configs = {one: _config(model, urls, one) for one in SETTINGS}
        environments = make_environments(configs[SETTINGS[0]])
        planned_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        measured_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        rollout_s: dict[Setting, list[float]] = {one: [] for one in SETTINGS}
        for _ in range(num_rounds):
            os.sched_setaffinity(0, cores[:1])
            fitted = measured_here(configs[SETTINGS[0]], environments, num_steps=num_steps)
            for one, config in configs.items():
                # Beside two servers the trainer has what they leave of either core.
                os.sched_setaffinity(0, cores[: one.num_servers])
                with waiting(one):
                    fleet = Fleet((one.num_servers,), (1,))
                    planned_s[one].append(planned(config, fitted, environments[0], fleet))
                    steps = taken(config, environments, num_steps, _watch(one, config))
                measured_s[one].append(median(step_seconds(steps)))
                rollout_s[one] += [step["time/rollout_s"] for step in steps]
                print(one, planned_s[one][-1], measured_s[one][-1], flush=True)
        num_levels = configs[SETTINGS[0]].rollout.num_levels
        simulated = {
            num: _rollout_s(configs[ALONE], fitted, environments[0], num) for num in SERVERS
        }
    rows = [{"setting": str(one), **compared(planned_s[one], measured_s[one])} for one in SETTINGS]
    measured = {num: median(rollout_s[ALONE._replace(num_servers=num)]) for num in (1, 2)}
    return {
        "settings": rows,
        "measured_per_hour": {n: round(3600 * num_levels / s) for n, s in measured.items()},
        "simulated_per_hour": {n: round(3600 * num_levels / s) for n, s in simulated.items()},
    }


def _rollout_s(config: Config, fitted: Here, environment: RunEnvironment, num: int) -> float:
    fleet = Fleet((num,), (1,))
    return rollouts_on(config, environment, fitted.workload, fleet, fitted.speeds.engines).seconds


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
    return (lambda pool: pool) if setting.is_continuous else Watch(config, math.inf).watched


if __name__ == "__main__":
    main()
