"""Training from Python, in scripts and in notebooks: `train` and `load_run`.

```python
from pettingllms_trainers import load_run, train

run = train("recipe:plan_path", num_steps=5, on_step=lambda step, metrics: print(step))
run.metrics["rollout/success"].plot()
run.evaluate(num_levels=20)
run.policy("planner").ask("a prompt")
```
"""

from __future__ import annotations

import base64
import contextlib
import html
import io
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pettingzoo import AECEnv

from pettingllms import TextEnv
from pettingllms.arguments import check_whole
from pettingllms.errors import counted
from pettingllms.evaluation import (
    EvaluationPlan,
    Report,
    RunFolder,
    RunFolderError,
    evaluate,
    summarise,
)
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.files import read_lines
from pettingllms.loops import finish, in_thread, is_in_loop
from pettingllms.policies import Policy, PolicySettings, Prompt, Sampling, load_policy
from pettingllms.sources import short_name
from pettingllms.trust import Name
from pettingllms.viewer import write_view
from pettingllms_trainers import commands
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import RunFiles, config_of, load_config
from pettingllms_trainers.ranks import StopRequest, StopRequested
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.report import learning_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

OnStep = Callable[[int, Mapping[str, float]], None]
"""Called after each train step with its number, from 1, and its metrics."""
_FIGURES = ("success", "success_low", "success_high", "num_turns", "num_episodes", "num_failed")


def train(
    source: Config | Mapping[str, Any] | RunFiles,
    *,
    resume: bool = False,
    trust: bool = False,
    on_step: OnStep | None = None,
    **changes: Any,
) -> Run:
    """Train as `pettingllms-train` does, and return the run; works in a notebook too.

    Args:
        source: A run file, such as ``recipe:plan_path`` or a path, several ones of which later
            ones count, or what one would contain.
        resume: Whether to continue what is in the output directory.
        trust: Whether run files may name code and servers; see `pettingllms.trust`.
        on_step: Called after each train step; what it raises ends the run.
        **changes: Keys of the run file, over it: ``num_steps=5, optimizer={"num_epochs": 2}``.

    Raises:
        PettingLLMsError: Bad input, or the run failed.
        KeyboardInterrupt: The run was interrupted. It has saved a checkpoint, from which
            ``resume=True`` continues; after a second interrupt the last one of the run.
    """
    config = config_of(source, changes, trust=trust)
    work = partial(commands.train, config, is_resumed=resume, on_step=on_step)
    # A notebook's cell runs inside an event loop, and a run needs one of its own.
    code = 128 + signal.SIGINT
    if is_in_loop():
        # Signals reach this thread only. After a second one it does not wait for the other one.
        with contextlib.suppress(StopRequested), StopRequest() as stop:
            code = in_thread(partial(work, stop=stop), stop.check)
    else:
        with StopRequest(raises=True):
            code = work()
    # Not a value: a script that continues with half a run must ask for it.
    if code > 1:
        raise KeyboardInterrupt(f"stopped; continue with resume=True ({config.output_dir})")
    return Run(config.output_dir, trust=True)  # what it names was typed, or trusted


def load_run(directory: str | Path, *, trust: bool = False) -> Run:
    """Open a run that was trained before, finished or not.

    Args:
        directory: Its output directory.
        trust: Whether it may name code and servers; see `pettingllms.trust`.

    Raises:
        RunFolderError: The directory is not that of a run.
    """
    return Run(directory, trust=trust)


class Run:
    """A run of training: its figures, its pictures, and its policies.

    Args:
        directory: Its output directory.
        trust: Whether it may name code and servers; see `pettingllms.trust`.

    Raises:
        RunFolderError: It is not that of a run.
    """

    def __init__(self, directory: str | Path, *, trust: bool = False) -> None:
        self._trained = TrainingRun.open(directory, trust=trust)
        self._files = RunDirectory(self._trained.path)

    @property
    def directory(self) -> Path:
        """Its output directory, absolute."""
        return self._trained.path

    @property
    def config(self) -> Config:
        """Its configuration.

        Raises:
            UntrustedName: It names code or a server, and is not trusted.
        """
        return load_config(self._files.config, trust=self._trained.is_trusted)

    @property
    def metrics(self) -> DataFrame:
        """A row per train step, from 0, the start; a column per metric, see METRICS.md."""
        from pandas import DataFrame  # a second, which not every caller needs

        lines = read_lines(self._files.metrics, "step")
        return DataFrame(lines, columns=None if lines else ["step"]).set_index("step")

    @property
    def evaluations(self) -> DataFrame:
        """Held-out success: a row per evaluation and variant, such as greedy; shares in [0, 1]."""
        from pandas import DataFrame

        rows = [
            {"step": line["step"], "variant": name, **{key: found[key] for key in _FIGURES}}
            for line in read_lines(self._files.evaluations, "step", "variants")
            for name, found in line["variants"].items()
        ]
        return DataFrame(rows, columns=["step", "variant", *_FIGURES])

    def plot(self) -> Figure:
        """Draw the learning curve as a figure of matplotlib.

        Raises:
            RunFolderError: Nothing is evaluated yet.
        """
        lines = read_lines(self._files.evaluations, "step", "variants")
        if not lines:
            raise RunFolderError(f"{self.directory} has no evaluation yet, so there is no curve")
        ids = str(self._trained.env_id).split(", ")
        return learning_curve(lines, ", ".join(map(short_name, ids)))

    def view(self) -> Page:
        """Write the run as one page, and return it; a notebook shows it."""
        return Page(write_view(self.directory, self.directory / "view.html").path)

    def policy(
        self, role: str, *, environment: str | None = None, step: int | None = None
    ) -> RolePolicy:
        """A role's policy, to be asked.

        Args:
            role: Who is asked.
            environment: In which one, of a run with several.
            step: Train step of a checkpoint; None: the newest state.

        Raises:
            InvalidArgument: There is no such environment or checkpoint.
            RunFolderError: There is no such role, or nothing is trained yet.
        """
        part = self._of(environment)
        assignment = part.assignment(step)
        if role not in assignment:
            raise RunFolderError(f"the run has no role {role!r}; it has: {', '.join(assignment)}")
        settings = PolicySettings(trust=self._trained.is_trusted)
        return RolePolicy(role, assignment[role], part.sampling(assignment)[role], settings)

    def evaluate(
        self,
        *,
        num_levels: int | None = None,
        num_samples: int = 1,
        policies: Mapping[str, str] | None = None,
        environment: str | None = None,
        step: int | None = None,
        out: str | Path | None = None,
    ) -> Report:
        """Play held-out levels of the run with its policies, as `pettingllms eval RUN` does.

        Args:
            num_levels: Levels; None: as many as the run's own evaluation has.
            num_samples: Plays of each level.
            policies: Role to another policy than the run's, such as ``oracle``.
            environment: Which one, of a run with several.
            step: Train step of a checkpoint; None: the newest state.
            out: Folder that keeps the episodes; None: a new one beside the run.
        """
        part = self._of(environment)
        assignment = {**part.assignment(step), **(policies or {})}
        # The run's own seed: these levels were never trained on.
        numbers = part.levels()
        plan = EvaluationPlan(
            env_id=part.env_id,
            variants={"main": assignment},
            env_kwargs=part.held_out_kwargs(),
            sampling=part.sampling(assignment),
            seed=numbers.get("seed", 0),
            num_levels=numbers.get("episodes", 100) if num_levels is None else num_levels,
            num_samples=num_samples,
        )
        folder = RunFolder.create(
            out or self._free_folder(), plan.with_distinct_levels(plan.make_env())
        )
        evaluate(folder, PolicySettings(trust=part.is_trusted))
        return summarise(folder.plan, folder.results(), folder.bill())

    def _of(self, environment: str | None) -> TrainingRun:
        known = self._trained.environments
        if environment is None and len(known) > 1:
            raise RunFolderError(f"the run has several environments; name one: {', '.join(known)}")
        return self._trained if environment is None else self._trained.environment(environment)

    def _free_folder(self) -> Path:
        number, path = 1, self.directory.with_name(f"{self.directory.name}-eval")
        while path.exists():
            number += 1
            path = self.directory.with_name(f"{self.directory.name}-eval-{number}")
        return path

    def __repr__(self) -> str:
        """Its directory, and how far it is."""
        steps = max((line["step"] for line in read_lines(self._files.metrics, "step")), default=0)
        total = self._trained.config["num_steps"]
        return f"Run({str(self.directory)!r}, {steps} of {counted(total, 'train step')})"

    def _repr_html_(self) -> str:
        text = f"<p>{html.escape(repr(self))}</p>"
        if not read_lines(self._files.evaluations, "step", "variants"):
            return text
        picture = io.BytesIO()
        self.plot().savefig(picture, format="png", dpi=100)
        data = base64.b64encode(picture.getvalue()).decode("ascii")
        return f'{text}<img alt="learning curve" src="data:image/png;base64,{data}">'


class RolePolicy:
    """The policy of a role, as a run has trained it.

    Args:
        role: Name of the role.
        name: Name of the policy; see `pettingllms.policies.load_policy`.
        sampling: How completions are drawn in the run's held-out evaluation.
        settings: How models are reached.
    """

    def __init__(
        self, role: str, name: Name, sampling: Sampling, settings: PolicySettings | None = None
    ) -> None:
        self.role = role
        self.name = str(name)
        self.sampling = sampling
        self._load = partial(load_policy, name, settings)
        self._policy: Policy | None = None

    def ask(
        self,
        prompt: str | Sequence[Mapping[str, str]] | TextEnv[Any],
        *,
        num_answers: int = 1,
        seed: int = 0,
        temperature: float | None = None,
        max_completion_tokens: int | None = None,
    ) -> list[str]:
        """Sample what the policy writes; the model is loaded at the first call.

        Args:
            prompt: A text, chat messages with `role` and `content`, or an environment: what its
                next agent reads.
            num_answers: Completions of the prompt, at least 1.
            seed: Of what is drawn, in [0, 2**31).
            temperature: At least 0; 0: greedy. None: that of the run's held-out evaluation.
            max_completion_tokens: At least 1; None: that of the run.

        Returns:
            [num_answers] completions.

        Raises:
            InvalidArgument: An argument is out of its range.
            PolicyFailure: The prompt cannot be answered.
            PolicyUnavailable: The model cannot be loaded.
        """
        check_whole("num_answers", num_answers, 1)
        asked = _prompt(prompt, f"{self.role}_0", seed)
        given = {"temperature": temperature, "max_completion_tokens": max_completion_tokens}
        changes = {name: value for name, value in given.items() if value is not None}
        settings = replace(self.sampling, **changes)
        # Loading takes seconds and memory, which looking at a run's roles should not cost.
        if self._policy is None:
            self._policy = self._load()
        (answer,) = finish(self._policy.sample([asked], num_answers, settings))
        return [completion.text for completion in answer.completions]

    def __repr__(self) -> str:
        """The role and the name."""
        return f"RolePolicy({self.role!r}, {self.name!r})"


def _prompt(
    prompt: str | Sequence[Mapping[str, str]] | TextEnv[Any], agent: str, seed: int
) -> Prompt:
    if isinstance(prompt, AECEnv):
        env = cast("TextEnv[Any]", prompt)
        agent = env.agent_selection
        return Prompt(env.messages(agent), agent, seed, env, env.constraints(agent))
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return Prompt(messages, agent, seed)


class Page:
    """A page that shows a run; a notebook shows it in a frame.

    Args:
        path: The HTML file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        """Where it is."""
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="700"></iframe>'
