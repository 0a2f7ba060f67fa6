"""Every metric is documented, every documented metric is logged; views show them."""

import io
import re
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.learning.groups import score_decisions, training_groups
from pettingllms_trainers.runs import recorder
from pettingllms_trainers.runs.evaluate import untouched
from pettingllms_trainers.runs.metrics import (
    METRICS,
    age_metrics,
    checked,
    ledger_metrics,
    metrics_table,
    rollout_metrics,
)
from pettingllms_trainers.runs.report import build_report, learning_curve, no_gain, report_table
from pettingllms_trainers.types import UpdateStats


def test_the_document_is_up_to_date(repository):
    text = (repository / "trainers" / "METRICS.md").read_text(encoding="utf-8")
    command = "python -m pettingllms_trainers.runs.metrics trainers/METRICS.md"
    assert metrics_table() in text, f"run: {command}"


def test_every_metric_is_explained_in_a_sentence():
    for name, metric in METRICS.items():
        assert metric.doc.endswith("."), name
        assert "|" not in metric.doc, f"{name}: breaks the table"


def test_every_token_has_its_own_age(play, echo_env, scripted_pool):
    """An answer of four tokens, of which the last two were written after two updates."""
    pool, _ = scripted_pool(lambda *_: "123")
    (tree,) = play(echo_env(max_turns=1), pool, num_candidates=2)
    first, *_ = tree.decisions
    candidate = first.candidates[0]
    later = replace(candidate, completion=replace(candidate.completion, swaps=(2, 2)))
    aged = replace(tree, decisions=(replace(first, version=3, candidates=(later,)),))
    assert age_metrics([aged], 5) == {"rollout/mean_age": 1.0, "rollout/max_age": 2}
    whole = replace(first, version=3, candidates=(candidate,))
    assert age_metrics([replace(tree, decisions=(whole,))], 5)["rollout/mean_age"] == 2.0


def test_unknown_or_infinite_metrics_are_refused():
    assert checked({"time/step_s": 1.0}) == {"time/step_s": 1.0}
    with pytest.raises(KeyError, match="new/thing"):
        checked({"new/thing": 1.0})
    with pytest.raises(TrainerError, match=r"loss/p/loss is nan: .* diverged.* in a new run"):
        checked({"loss/p/loss": float("nan")})


def test_rollout_metrics(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(caller=lambda p, k, s: "5", echo=lambda p, k, s: ["bad", "5", "99"][k])
    trees = play(echo_env(max_turns=2), pool, seeds=(1, 2))
    scored = score_decisions(trees, AtGrpo())
    metrics = rollout_metrics(trees, scored)
    checked(metrics)
    assert metrics["rollout/num_trees"] == 2
    assert metrics["rollout/success"] == 1.0
    assert metrics["rollout/num_turns"] == 1.0
    assert metrics["rollout/num_completion_tokens"] == 2 * (3 * 2 + 4 + 2 + 3)
    assert metrics["role/caller/decisions_used"] == 0.0, "equal rewards"
    assert metrics["role/echo/decisions_used"] == 1.0
    assert metrics["role/echo/num_decisions"] == 2
    assert metrics["role/echo/parse_errors"] == pytest.approx(1 / 3)
    assert metrics["role/echo/reward"] == pytest.approx((-1 + 6 + 99) / 3)
    assert metrics["role/echo/team"] == pytest.approx(1 / 3)
    assert metrics["role/echo/local"] == pytest.approx((-1 + 5 + 99) / 3)


def test_failures_are_counted(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(lambda p, k, s: str(13 if s % 3 == 0 else k))
    env = echo_env(crash_on="13", crash=ConnectionError)
    trees = play(env, pool, seeds=range(9), allowed=0.99)
    metrics = rollout_metrics(trees, score_decisions(trees, AtGrpo()))
    assert metrics["rollout/num_failed_trees"] > 0
    assert metrics["rollout/num_failed_trees"] + metrics["rollout/num_trees"] == 9
    shares = [metrics[f"rollout/ends_{kind}"] for kind in ("policy", "limit", "infrastructure")]
    assert shares[2] == metrics["rollout/end/connection"] == metrics["rollout/num_failed_trees"] / 9
    assert sum(shares) == pytest.approx(1)
    assert metrics["rollout/end/turns"] + metrics["rollout/end/answered"] == shares[0]


@pytest.mark.parametrize("mask_truncated", [False, True])
def test_every_sampled_token_has_a_line_in_the_account(
    echo_env, scripted_pool, play, mask_truncated
):
    """Of caller all answers earn the same; of echo's 4, 2 and 3 tokens the first are cut off."""
    pool, _ = scripted_pool(caller=lambda p, k, s: "5", echo=lambda p, k, s: ["bad", "5", "99"][k])
    trees = [_first_cut_off(tree) for tree in play(echo_env(max_turns=2), pool, seeds=(1, 2))]
    scored = score_decisions(trees, AtGrpo())
    data = training_groups(scored.decisions, mask_truncated=mask_truncated)
    trained = sum(len(c.token_ids) for group in data["echo"] for c in group.completions) - 2
    fractions = {"flat_fraction": 0.25, "masked_fraction": 0.5, "clip_fraction": 0.125}
    stats = {"echo": UpdateStats(num_groups=2, num_tokens=trained, **fractions)}
    metrics = ledger_metrics(scored, data, stats)
    checked(metrics)
    assert metrics["tokens/caller/sampled"] == 2 * 3 * 2
    assert metrics["tokens/caller/equal_rewards"] == 1
    found = {
        name.rpartition("/")[2]: share * 2 * (4 + 2 + 3)
        for name, share in metrics.items()
        if name.startswith("tokens/echo/") and "sampled" not in name
    }
    assert found == pytest.approx(
        {
            "equal_rewards": 0,
            "truncated": 2 * 4 * mask_truncated,
            "unused": 2,
            "flat": trained / 4,
            "masked": trained / 2,
            "clipped": trained / 8,
            "learnt": trained / 8,
        }
    )


def _first_cut_off(tree):
    def cut(candidate):
        return replace(candidate, completion=replace(candidate.completion, finish_reason="length"))

    decisions = [
        replace(d, candidates=(cut(d.candidates[0]), *d.candidates[1:])) for d in tree.decisions
    ]
    return replace(tree, decisions=tuple(decisions))


STEP = {
    "time/step_s": 2.0,
    "role/tool/reward": 0.25,
    "role/tool/decisions_used": 0.5,
    "loss/p/entropy": 1.5,
    "throughput/sampled_tokens_per_s": 12345.6,
    "eval/greedy/success": 0.75,
}


def shown(kind, steps=20):
    console = Console(file=io.StringIO(), width=160, force_terminal=kind == "live")
    view = recorder.progress_view(kind, console, steps)
    with view:
        view.note("warm start")
        for step in range(1, steps + 1):
            view.step(step, STEP)
    return type(view), console.file.getvalue()


def test_plain_view_is_one_line_per_step():
    kind, text = shown("auto")
    assert kind is recorder.PlainProgress
    lines = text.splitlines()
    assert lines[0] == "warm start"
    assert lines[1] == (
        "step 1/20: tool reward +0.250, tool used 50%, p entropy 1.50, tokens/s 12,346, "
        "held-out 75.0%, left 0:38"
    )
    assert len(lines) == 21


def test_a_long_silence_is_broken_by_what_is_done(monkeypatch):
    monkeypatch.setattr(recorder.PlainProgress, "quiet_s", 0.001)
    console = Console(file=io.StringIO(), width=160)
    view, said = recorder.progress_view("plain", console, 3), threading.Event()

    def activity():
        if console.file.getvalue():
            said.set()
        return recorder.Doing("rollouts: 7 of at most 7 completions", 7, 7)

    with view, view.busy(activity):
        assert said.wait(60)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "rollouts: 7 of at most 7 completions, 0 s, 0:00 left"
    with recorder.progress_view("off", console, 3) as silent, silent.busy(activity):
        pass


def test_live_view_and_silence():
    kind, text = shown("live")
    assert kind is recorder.LiveProgress
    for part in ("tool used", "12,346", "20 of 20 train steps"):
        assert part in text
    assert shown("off") == (recorder.ProgressView, "")


def test_nothing_is_cut_where_a_terminal_has_80_columns():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with recorder.progress_view("live", console, 20) as view:
        view.note("warm start of planner: step 20 of 20, loss 2.553, and nothing else to be told")
        view.step(1, STEP)
        view.note("evaluation after train step 1: 64 completions of held-out episodes")
        view.warn("train step 1: the policy planner was not updated, and so it learns nothing")
    assert "warning: train step 1: the policy planner was not updated" in console.file.getvalue()
    last = console.file.getvalue().rpartition("1 of 20 train steps")
    assert last[0].endswith("\n"), "the bar has a line of its own"
    assert "warm start" not in last[2], "what is over is no longer shown"
    assert "64 completions of held-out" in " ".join(last[2].split())
    first = evaluation(0, 1.0)
    first["variants"] |= untouched({"greedy": variant(1.0), "sampled": variant(1.0)})
    console.print(report_table(build_report([first, evaluation(9, 1.0)]), console))
    table = console.file.getvalue().partition("who plays")[2]
    assert len(re.findall(r"\(\d+\.\d to \d+\.\d\)", table)) == 7
    assert max(map(len, table.splitlines())) <= 80


def variant(success, num_failed=0):
    interval = {"success_low": success - 0.1, "success_high": success + 0.1}
    return {"success": success, "num_failed": num_failed, "ends": {}, **interval}


def evaluation(step, success):
    variants = {"greedy": variant(success), "sampled": variant(success - 0.05)}
    if step == 0:
        variants["scripted:greedy"] = variant(0.8)
    return {"step": step, "manifest": "abcd", "num_episodes": 64, "variants": variants}


def test_policies_before_their_warm_start_have_a_column_of_their_own():
    first = evaluation(0, 0.3)
    first["variants"] |= untouched({"greedy": variant(0.02), "sampled": variant(0.01)})
    lines = [first, evaluation(9, 0.9)]
    report = build_report(lines)
    assert report["before"]["variants"]["greedy"]["success"] == 0.02
    assert report["warm_start"]["variants"]["greedy"]["success"] == 0.3
    assert set(report["after"]["variants"]) == {"greedy", "sampled"}
    console = Console(file=io.StringIO(), width=160)
    console.print(report_table(report, console))
    rows = console.file.getvalue().splitlines()
    heading = next(row for row in rows if "who plays" in row)
    assert heading.index("before training") < heading.index("after warm start")
    (row,) = [row for row in rows if "policies, greedy" in row]
    assert row.index("2.0 %") < row.index("30.0 %") < row.index("90.0 %")


@pytest.mark.parametrize(
    ("before", "after", "sampled", "is_told"),
    [
        (0.2, 0.9, None, False), (0.2, 0.25, None, True), (0.9, 0.2, None, True),
        (1.0, 1.0, None, False), (0.5, 0.52, (0.1, 0.4), False), (0.5, 0.52, (0.1, 0.15), True),
        (0.5, 0.52, (0.4, 0.1), True),
    ],
)  # fmt: skip
def test_a_run_without_a_gain_says_so(before, after, sampled, is_told):
    """Greedy play may begin where only sampled play still learns."""
    lines = [evaluation(0, before), evaluation(2, after)]
    for line, share in zip(lines, sampled or (), strict=False):
        line["variants"]["sampled"] = variant(share)
    assert no_gain(build_report(lines[:1])) == "", "nothing was trained"
    told = no_gain(build_report(lines))
    assert bool(told) == is_told
    if is_told:
        assert f"after 2 train steps: {before:.1%} of the held-out levels" in told
        assert "A run that does not learn" in told


def test_report_shows_before_after_and_scripted_policies(tmp_path):
    lines = [evaluation(0, 0.2), evaluation(5, 0.5), evaluation(9, 0.9)]
    lines[-1]["variants"]["swapped"] = variant(0.1, num_failed=3)
    report = build_report(lines)
    assert report["before"]["variants"]["greedy"]["success"] == 0.2
    assert report["after"]["step"] == 9
    assert report["after"]["variants"]["swapped"]["success"] == 0.1
    assert list(report["scripted"]) == ["scripted:greedy"]
    console = Console(file=io.StringIO(), width=120)
    console.print(report_table(report, console))
    text = console.file.getvalue()
    for part in ("64 levels", "abcd", "20.0 %", "90.0 %", "scripted policy greedy", "80.0 %"):
        assert part in text
    assert "10.0 % (0.0 to 20.0), 3 failed" in text
    assert text.count("failed") == 1
    learning_curve(lines, "toy").savefig(tmp_path / "curve.png", dpi=150)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
