"""What a run reports: progress on a terminal, metrics in files, rollout trees as JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Literal, NamedTuple, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pettingllms.errors import counted
from pettingllms.files import json_line, read_lines, whole_file, write_whole
from pettingllms.loops import meanwhile
from pettingllms.sources import short_name
from pettingllms_trainers.config import Config, EnvConfig
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.learning.groups import ScoredDecisions
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import held_out_kwargs
from pettingllms_trainers.runs.evaluate import is_untouched
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.metrics import METRICS, StallWatch, checked, template_of
from pettingllms_trainers.runs.report import build_report, learning_curve
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    ImitationStep,
    RolloutTree,
    TokenCompletion,
)

_LOG = logging.getLogger(__name__)
_NUM_STEPS = 12
# Characters of a train step in the live table.
_STEP_WIDTH = 8


class Doing(NamedTuple):
    """A piece of work and its progress."""

    text: str
    done: float = 0.0
    """Part that is done, in any unit; 0: not known yet."""
    total: float = 0.0
    """The whole in the same unit, at most; 0: not known."""

    def after(self, seconds: float) -> str:
        """The text after so many seconds, with the estimated time that is left."""
        told = f"{self.text}, {seconds:.0f} s"
        if not self.done or not self.total:
            return told
        left = seconds * max(self.total - self.done, 0) / self.done
        return f"{told}, {_minutes(left)} left"


Activity = Callable[[], Doing]


class RunConsole(Console):
    """Standard output of a run, which goes on where that is closed: its files have all."""

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except (OSError, SystemExit) as error:  # rich ends the process for a closed pipe
            self.quiet = True
            _LOG.warning(
                "the run goes on, but nobody reads what it prints (%r)", error.__context__ or error
            )


class ProgressView:
    """Shows how a run progresses, used as a context; this one shows nothing."""

    quiet_s = float("inf")
    """Seconds without output after which the view says what is being done."""

    def __enter__(self) -> Self:
        """Start to show."""
        return self

    def __exit__(self, *raised: Any) -> None:
        """Stop to show."""

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""

    def warn(self, text: str) -> None:
        """Report what may be wrong with the run."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a train step that is done."""

    def busy(self, activity: Activity) -> contextlib.AbstractContextManager[None]:
        """Report what is being done, now and then, while the context lasts."""
        started = time.monotonic()
        return meanwhile(
            self.quiet_s, lambda: self.note(activity().after(time.monotonic() - started))
        )


class PlainProgress(ProgressView):
    """Prints a line per train step, and one every `quiet_s` within a long one."""

    quiet_s = 30.0

    def __init__(self, console: Console, num_steps: int) -> None:
        self._console = console
        self._clock = _Clock(num_steps)

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.note(f"warning: {text}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        cells = _cells(metrics)
        cells["left"] = self._clock.left(step, metrics)
        parts = [f"{name} {value}" for name, value in cells.items()]
        self.note(f"step {step}/{self._clock.num_steps}: {', '.join(parts)}")


class LiveProgress(ProgressView):
    """A table of the latest train steps that is redrawn in place."""

    quiet_s = 2.0

    def __init__(self, console: Console, num_steps: int) -> None:
        self._live = Live(console=console, refresh_per_second=4)
        self._clock = _Clock(num_steps)
        self._rows: deque[tuple[int, dict[str, str]]] = deque(maxlen=_NUM_STEPS)
        self._note = ""
        self._warnings: list[str] = []
        self._done = 0
        self._left = ""

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._live.__exit__(*raised)

    def note(self, text: str) -> None:
        self._note = text
        self._live.update(self._render())

    def warn(self, text: str) -> None:
        """Report what may be wrong with the run; it stays on the screen."""
        self._warnings.append(text)
        self._live.update(self._render())

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._rows.append((step, _cells(metrics)))
        self._done = step
        self._note = ""
        self._left = self._clock.left(step, metrics)
        self._live.update(self._render())

    def _render(self) -> RenderableType:
        headings = list(dict.fromkeys(name for _, cells in self._rows for name in cells))
        # A row for each metric: roles add rows, and a narrow terminal shows fewer steps.
        label = max(map(len, headings), default=0)
        num_shown = max((self._live.console.width - label - 3) // _STEP_WIDTH, 1)
        shown = list(self._rows)[-num_shown:]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
        table.add_column("step")
        for step, _ in shown:
            table.add_column(str(step), justify="right", min_width=_STEP_WIDTH - 1)
        for heading in headings:
            table.add_row(heading, *(cells.get(heading, "") for _, cells in shown))
        total = self._clock.num_steps
        # The padding ends the line, which a bar alone does not.
        bar = Padding(ProgressBar(total=max(total, 1), completed=self._done, width=40), 0)
        steps = f"{self._done} of {counted(total, 'train step')}"
        line = Text(f"{steps}, {self._left or '?'} left. {self._note}")
        warnings = [Text(f"warning: {text}", style="yellow") for text in self._warnings]
        return Group(*([table, bar] if self._rows else []), line, *warnings)


class _Clock:
    """Estimates the time that is left from the latest train steps."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self._seconds: deque[float] = deque(maxlen=20)

    def left(self, step: int, metrics: Mapping[str, float]) -> str:
        self._seconds.append(metrics["time/step_s"] + metrics.get("time/evaluate_s", 0.0))
        # The latest 20 alone: answers get longer or shorter while a run learns.
        mean = sum(self._seconds) / len(self._seconds)
        return _minutes(mean * (self.num_steps - step))


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _cells(metrics: Mapping[str, float]) -> dict[str, str]:
    """Heading to text of the metrics that are shown; of an evaluation the first way."""
    cells: dict[str, str] = {}
    played = (name.split("/")[1] for name in metrics if name.startswith("eval/"))
    # The figures before a warm start are not those of the policies that are trained now.
    first = next((name for name in played if not is_untouched(name)), "")
    for name, value in metrics.items():
        template = template_of(name)
        shown = METRICS[template].shown if template else None
        subject = name.split("/")[1]
        if shown is None or (name.startswith("eval/") and subject != first):
            continue
        if name.startswith("eval/"):
            subject = name.split("/")[2] if "<env>" in str(template) else ""
        has_subject = subject and name.startswith(("role/", "loss/", "env/", "eval/"))
        heading = f"{subject} {shown.heading}" if has_subject else shown.heading
        cells[heading] = format(value, shown.style)
    return cells


def progress_view(
    kind: Literal["auto", "live", "plain", "off"], console: Console, num_steps: int
) -> ProgressView:
    """The view a configuration asks for; `auto` is live on a terminal, else plain."""
    if kind == "off":
        return ProgressView()
    if kind == "live" or (kind == "auto" and console.is_terminal):
        return LiveProgress(console, num_steps)
    return PlainProgress(console, num_steps)


# Digits of log-probabilities and entropies: for people, and they are most of a tree's size.
_DIGITS = 4


def tree_to_json(
    tree: RolloutTree,
    scored: Mapping[DecisionKey, Decision] | None = None,
    token_texts: Mapping[str, Mapping[int, str]] | None = None,
) -> dict[str, Any]:
    """A rollout tree as JSON data.

    Args:
        scored: Groups with advantages, also those of other trees; None: there are none.
        token_texts: Policy to the texts of its tokens; the completions of other policies are
            written without tokens.
    """
    known, texts = scored or {}, token_texts or {}

    def written(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
        found = (known.get(decision.key, decision) for decision in decisions)
        return [_decision(one, texts.get(one.policy)) for one in found]

    return {
        "episode": tree.episode,
        "env_seed": tree.env_seed,
        "initial_state_hash": tree.initial_state_hash,
        "end": tree.end,
        "cause": tree.cause,
        "outcome": None if tree.outcome is None else asdict(tree.outcome),
        "num_continuation_tokens": tree.num_continuation_tokens,
        "num_prefix_decisions": len(tree.prefix),
        "decisions": written([*tree.prefix, *tree.decisions]),
    }


def _decision(decision: Decision, token_texts: Mapping[int, str] | None) -> dict[str, Any]:
    return {
        **_figures(decision),
        "agent": decision.key.agent,
        "turn": decision.key.turn,
        "policy": decision.policy,
        "observation": decision.observation,
        "num_prompt_tokens": len(decision.prompt_ids),
        "chosen": decision.chosen,
        "candidates": [_candidate(one, token_texts) for one in decision.candidates],
    }


def _candidate(candidate: Candidate, token_texts: Mapping[int, str] | None) -> dict[str, Any]:
    completion = candidate.completion
    written = {
        **_figures(candidate),
        **{f"judged {name}": score for name, score in candidate.judged.items()},
        "text": completion.text,
        "num_tokens": len(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "parse_error": candidate.parse_error,
        "end": candidate.end,
        "cause": candidate.cause,
        "success": candidate.success,
        "advantage": candidate.advantage,
    }
    if token_texts is None or not completion.token_ids:
        return written
    return {**written, "tokens": _tokens(completion, token_texts)}


def _figures(value: Decision | Candidate) -> dict[str, float]:
    """All numbers of a value by name: the viewer shows those that it does not know, too."""
    named = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {
        name: number
        for name, number in named
        if isinstance(number, int | float) and not isinstance(number, bool)
    }


def _tokens(completion: TokenCompletion, token_texts: Mapping[int, str]) -> dict[str, list[Any]]:
    """Columns with one entry per token."""
    columns: dict[str, list[Any]] = {
        "text": [token_texts[token] for token in completion.token_ids],
        "logprob": [round(value, _DIGITS) for value in completion.logprobs],
    }
    if completion.entropies:
        columns["entropy"] = [round(value, _DIGITS) for value in completion.entropies]
    return columns


TreeSet = Literal["training", "held_out"]


class TreeFile:
    """Writes `rollouts.jsonl`.

    It holds trees of the first and the last train step, of every `logging.rollouts_every`-th
    between them, and held-out episodes before and after training.

    Args:
        files: The directory of the run.
        config: What is recorded, and the maximum size.
        note: Reports a tree that does not fit.
    """

    def __init__(self, files: RunDirectory, config: Config, note: Callable[[str], None]) -> None:
        self._files, self._config, self._note = files, config, note
        self._every = config.logging.rollouts_every
        self._max_bytes = int(config.logging.max_rollouts_mb * 1e6)

    def resume(self) -> None:
        """Go on with the interval of the file: a run that dropped steps for room drops on."""
        steps = {line["step"] for line in read_lines(self._files.rollouts) if line["step"]}
        last = max(steps, default=0)
        while self._every and not steps.issuperset(range(self._every, last + 1, self._every)):
            self._every *= 2

    def training(
        self, step: int, trees: Sequence[RolloutTree], scored: ScoredDecisions, pool: PolicyPool
    ) -> None:
        """Write trees of a train step, if it is one of those that are kept."""
        if not self._every or not self._is_kept(step):
            return
        for name, env in zip(self._config.env_names, self._config.env, strict=True):
            own = [tree for tree in trees if tree.env == name]
            # Trees whose candidates differ show what was learnt from; equal ones teach nothing.
            by_spread = sorted(own, key=num_mixed, reverse=True)  # stable: then in play order
            chosen = by_spread[: self._config.logging.num_rollouts]
            places = [_place(name, env, kwargs) for kwargs in env.stage_kwargs]
            self._write(step, "training", places, chosen, scored.decisions, pool)

    def held_out(self, step: int, trees: Sequence[RolloutTree], pool: PolicyPool) -> None:
        """Write held-out episodes."""
        pairs = zip(self._config.env_names, self._config.env, strict=True)
        for name, env in pairs if self._every else ():
            own = [tree for tree in trees if tree.env == name]
            place = _place(name, env, held_out_kwargs(self._config, env))
            self._write(step, "held_out", [place], own, (), pool)

    def _is_kept(self, step: int) -> bool:
        return step in (1, self._config.num_steps) or step % self._every == 0

    def _write(
        self,
        step: int,
        tree_set: TreeSet,
        places: Sequence[Mapping[str, Any]],
        trees: Sequence[RolloutTree],
        scored: Sequence[Decision],
        pool: PolicyPool,
    ) -> None:
        texts, known = _token_texts(trees, pool), {one.key: one for one in scored}
        for tree in trees:
            line = {"set": tree_set, **places[tree.stage], **tree_to_json(tree, known, texts)}
            # The file has a limit: a long run with long answers would fill a disk with examples.
            num_bytes = len(json_line({"step": step, **line}))
            has_room = self._makes_room(num_bytes)
            if tree_set == "training" and not self._is_kept(step):
                return  # its own step was dropped to make room
            if has_room:
                self._files.append(self._files.rollouts, step, line)
            else:
                self._note(
                    f"a rollout tree of {num_bytes / 1e6:.1f} MB is not written: rollouts.jsonl "
                    "would be larger than logging.max_rollouts_mb"
                )

    def _makes_room(self, num_bytes: int) -> bool:
        """Drop train steps until so many bytes more fit; return whether they do."""
        path = self._files.rollouts
        while (path.stat().st_size if path.exists() else 0) + num_bytes > self._max_bytes:
            lines = read_lines(path, "step", "set")
            held_out = [line for line in lines if line["set"] == "held_out"]
            training = [line for line in lines if line["set"] != "held_out"]
            if {line["step"] for line in training} <= {1, self._config.num_steps}:
                return False
            # Every second step goes, so that those which stay are spread evenly over the run.
            self._every *= 2
            kept = [line for line in training if self._is_kept(line["step"])]
            kept = sorted(held_out + kept, key=lambda line: line["step"])
            with whole_file(path, "wb") as file:
                file.writelines(map(json_line, kept))
        return True


def _token_texts(trees: Sequence[RolloutTree], pool: PolicyPool) -> dict[str, dict[int, str]]:
    """Policy to token to text: a tokenizer is asked once for all that the trees hold."""
    tokens: dict[str, set[int]] = defaultdict(set)
    for tree in trees:
        for decision in (*tree.prefix, *tree.decisions):
            tokens[decision.policy].update(
                token for one in decision.candidates for token in one.completion.token_ids
            )
    asked = {
        name: (policy.token_texts, sorted(tokens[name]))
        for name, policy in pool.policies.items()
        if policy.token_texts is not None
    }
    return {name: dict(zip(ids, read(ids), strict=True)) for name, (read, ids) in asked.items()}


def _place(name: str, env: EnvConfig, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a line says of the environment; its id only where there are several."""
    which = {"environment": name, "env_id": env.id} if name else {}
    return {**which, "env": kwargs}


def num_mixed(tree: RolloutTree) -> int:
    """Number of decisions whose candidates earned different rewards."""
    return sum(len({one.reward for one in group.candidates}) > 1 for group in tree.decisions)


class Recorder:
    """Writes all that a run reports: to files, to trackers and to the progress view."""

    def __init__(
        self, files: RunDirectory, config: Config, progress: ProgressView, trackers: Trackers
    ) -> None:
        self._files = files
        self._config = config
        self._progress = progress
        self._trackers = trackers
        self._trees = TreeFile(files, config, progress.note)
        self._watch = StallWatch(config)

    @property
    def is_stalled(self) -> bool:
        """Whether nothing is learnt any more; only the main rank finds out."""
        return self._watch.is_stalled

    def warnings(self) -> list[str]:
        """What was wrong for several train steps."""
        return self._watch.warnings()

    def start_at(self, step: int) -> bool:
        """Forget what was written after a step, -1 for everything; return if it has metrics."""
        self._files.forget_after(step)
        self._trackers.start_at(step)
        self._trees.resume()
        # A resumed run warns as one that was never interrupted: it sees all earlier steps again.
        lines = read_lines(self._files.metrics, "step")
        for line in lines:
            if line["step"] > 0:
                self._watch.step(line["step"], line)
        return any(line["step"] == step for line in lines)

    def busy(self, activity: Activity) -> contextlib.AbstractContextManager[None]:
        """Break long silence, while the context lasts, by what is being done."""
        return self._progress.busy(activity)

    def imitation(self, policy: str, step: ImitationStep) -> None:
        """Write what a supervised step did."""
        values = {"policy": policy, "supervised_step": step.step + 1}
        values |= {"loss": step.loss, "grad_norm": step.grad_norm}
        # A warm start that is interrupted begins again, so its lines need not survive a crash.
        self._files.append(self._files.warm_start, 0, values, is_durable=False)

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""
        self._progress.note(text)

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics after a train step; step 0 is the start.

        Raises:
            TrainerError: A value is not finite.
        """
        # The file comes first: what trackers miss is still here.
        self._files.append(self._files.metrics, step, checked(metrics))
        self._trackers.write(step, metrics)
        if step > 0:
            self._progress.step(step, metrics)
            for warning in self._watch.step(step, metrics):
                self._progress.warn(warning)

    def rollouts(
        self, step: int, trees: Sequence[RolloutTree], scored: ScoredDecisions, pool: PolicyPool
    ) -> None:
        """Write some rollout trees of a train step, when the configuration wants them."""
        self._trees.training(step, trees, scored, pool)

    def held_out(self, step: int, trees: Sequence[RolloutTree], pool: PolicyPool) -> None:
        """Write some held-out episodes, when the configuration wants rollout trees."""
        self._trees.held_out(step, trees, pool)

    def evaluation(self, step: int, line: Mapping[str, Any]) -> None:
        """Write a held-out evaluation."""
        self._files.append(self._files.evaluations, step, line)

    def policies(self, pool: PolicyPool) -> None:
        """Write the trainable policies as ordinary Hugging Face directories."""
        for name, updater in pool.updaters().items():
            final = self._files.policies / name
            with whole_directory(final) as partial:
                updater.save_pretrained(partial, final=final)

    def finish(self, pool: PolicyPool) -> dict[str, Any]:
        """Write policies, report and learning curve; return the report."""
        evaluations = read_lines(self._files.evaluations, "step", "variants")
        report = build_report(evaluations) | {
            "num_optimizer_steps": self._num_optimizer_steps(),
            "warnings": self.warnings(),
        }
        self.policies(pool)
        write_whole(self._files.report, json.dumps(report, indent=2) + "\n")
        title = ", ".join(short_name(env.id) for env in self._config.env)
        # Last: it imports matplotlib, and all that cannot be made again is written by now.
        learning_curve(evaluations, title).savefig(self._files.curve, dpi=150)
        return report

    def _num_optimizer_steps(self) -> int:
        """Of all policies in the whole run, the steps before it was resumed included."""
        return int(
            sum(
                value
                for line in read_lines(self._files.metrics)
                for name, value in line.items()
                if name.startswith("update/") and name.endswith("/num_optimizer_steps")
            )
        )


class SilentRecorder(Recorder):
    """The recorder of all ranks but the main one: writes nothing, and joins collective calls."""

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        """Only the main rank writes."""

    note = imitation = rollouts = held_out = evaluation = _nothing

    def start_at(self, step: int) -> bool:
        return False

    def busy(self, activity: Activity) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        checked(metrics)

    def policies(self, pool: PolicyPool) -> None:
        # Weights are gathered from all ranks; the main one has the files.
        for name, updater in pool.updaters().items():
            updater.save_pretrained(self._files.policies / name)

    def finish(self, pool: PolicyPool) -> dict[str, Any]:
        self.policies(pool)
        return {}
