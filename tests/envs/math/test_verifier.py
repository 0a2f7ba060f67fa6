"""The verifier: equivalence, failures, memory, credit, and how many comparisons a step takes."""

import itertools
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms.callers import ACTING, new_caller
from pettingllms.errors import InvalidArgument
from pettingllms.parsing import read_boxed
from pettingllms.sandbox import CallResult, ExecutionResult, Status
from pettingllms.testing import play
from pettingllms_envs.datasets import MathProblem, load_problems
from pettingllms_envs.math import MathEnsembleEnv, MathEnv, Outcome, Verifier
from pettingllms_envs.math.base import MAX_FAILURES
from pettingllms_envs.math.notation import MAX_ANSWER_CHARS
from pettingllms_envs.math.rules import MAX_COMPARED_GROUPS
from pettingllms_envs.math.verifier import NO_CREDIT

CASES = json.loads(Path(__file__).with_name("verdicts.json").read_text("utf-8"))

PUBLIC_PAIRS = Path(__file__).with_name("math_verify_pairs.tsv")


class FakeSandbox:
    """Takes the sandbox's place: notes texts and limits, and runs nothing."""

    status, value, wall_s = Status.OK, ["wrong", ""], 0.0

    def __init__(self, **arguments):
        self.asked, self.limits_s = [], []

    def run_calls(self, program, name, args_list, limits):
        self.asked += args_list
        self.limits_s.append(limits.cpu_s)
        result = ExecutionResult(self.status, "", "", 0, self.wall_s, 0.0, 0, truncated=False)
        return [CallResult(result, self.value, self.status is Status.OK)]


@pytest.fixture
def fake(monkeypatch):
    """A verifier of 2 s, and the sandbox that it asks."""
    sandbox = FakeSandbox()
    monkeypatch.setattr("pettingllms_envs.math.verifier.Sandbox", lambda **arguments: sandbox)
    return Verifier(timeout_s=2.0), sandbox


@pytest.fixture(scope="module")
def verifier():
    return Verifier(timeout_s=60.0)


@pytest.mark.parametrize(
    ("kind", "reference", "answer"), [(kind, *pair) for kind in CASES for pair in CASES[kind]]
)
def test_verdicts(verifier, kind, reference, answer):
    """Equal in other words, written out, to be calculated, another answer, or in boxes."""
    verdict = verifier.judge(reference, read_boxed(answer) if "boxed" in kind else answer)
    is_right = kind in ("equal", "written", "boxed right")
    assert verdict.outcome is (Outcome.CORRECT if is_right else Outcome.WRONG), verdict
    if kind == "equal":
        assert verifier.equivalence(answer, reference).is_correct


def test_the_public_cases_of_math_verify(verifier):
    """Pairs from the tests of math-verify 0.9.0, without those in which an answer is to be found
    in running text: the games read boxes, and `boxed` in the cases above says how. What it calls
    equal and we refuse is marked with the reason."""
    wrong = []
    for line in PUBLIC_PAIRS.read_text("utf-8").splitlines():
        expected, reference, answer = line.split("\t")
        if verifier.judge(reference, answer).is_correct != (expected == "equal"):
            wrong.append(line)
    assert not wrong


def test_a_decimal_is_no_answer_where_a_fraction_is_asked_for(verifier):
    assert verifier.judge(r"\frac{1}{3}", r"0.\overline{3}").is_correct
    for decimal in (r"0.\overline{3}", "0.(3)", "0.333333333", ".3333333", r"33.3333333\%"):
        verdict = verifier.judge(r"\frac{1}{3}", decimal, form="fraction")
        assert "a fraction is asked for" in verdict.detail
    for right in ("1/3", r"x=\frac{1}{3}", r"\dfrac13"):
        assert verifier.judge(r"\frac{1}{3}", right, form="fraction").is_correct


def test_a_fraction_that_is_asked_for_is_in_lowest_terms(verifier):
    for value, unreduced in (
        (r"\frac{1}{3}", ["2/6", r"\frac26", r"$x=\dfrac{ 2 }{ -6}$", "(2/6)", "10/ 30"]),
        (r"\frac{4}{3}", ["1 2/6"]),
    ):
        for answer in unreduced:
            verdict = verifier.judge(value, answer, form="fraction")
            assert "not in lowest terms" in verdict.detail
    assert verifier.judge(r"\frac{1}{3}", "2/6").is_correct


def test_a_refused_form_says_why(verifier):
    assert "simplest form" in verifier.judge("0.5", r"\frac14 + \frac14").detail
    assert "binom" in verifier.judge(r"6\pi", r"\binom{4}{2}\pi").detail


@pytest.mark.parametrize("answer", ["", "  ", "}}{{", r"\frac{}{", "7" * (MAX_ANSWER_CHARS + 1)])
def test_what_is_no_mathematics_is_unparsable(verifier, answer):
    assert verifier.judge(r"2\sqrt{3}", answer).outcome is Outcome.UNPARSABLE


def test_answers_of_team_mates_that_are_too_long_agree_with_nothing(verifier):
    # Converting that many digits raises in Python; neither order may.
    long = rf"0.\overline{{{'3' * 4400}}}"
    assert verifier.equivalence(long, "0").outcome is Outcome.UNPARSABLE
    assert verifier.equivalence("0", long).outcome is Outcome.UNPARSABLE


def test_units_and_tolerance(verifier):
    assert verifier.judge("4.2", r"4.2\%", unit="%").is_correct
    assert verifier.judge("45", "45 minutes", unit="minute").is_correct
    assert verifier.judge("45", "45 min", unit="minute").is_correct
    assert "another unit: hour" in verifier.judge("45", "45 hours", unit="minute").detail
    assert not verifier.judge("45", r"45\text{ hours}", unit="minute").is_correct
    assert not verifier.judge("45", "45 cm", unit="$\\mathrm{cm}^2$").is_correct
    assert verifier.judge("4.2", "4.25", tolerance=0.1).is_correct
    assert not verifier.judge("4.2", "4.35", tolerance=0.1).is_correct
    assert verifier.judge("100", "101", tolerance=1).is_correct


COSTLY = "(a+b+c+d+e)^{60}"


def test_a_text_that_takes_too_long_is_no_wrong_answer():
    verdict = Verifier(timeout_s=1.5).judge("2(x+1)", COSTLY)
    assert verdict.outcome is Outcome.VERIFIER_FAILED
    assert "processor time" in verdict.detail


def test_who_used_much_has_less_at_a_time_and_others_have_not(fake):
    verifier, sandbox = fake
    sandbox.wall_s = 1e6
    verifier.judge("x+7", "y+7")
    sandbox.status, sandbox.wall_s = Status.CPU_LIMIT, 0.0
    assert verifier.judge("2(x+1)", COSTLY) == NO_CREDIT
    token = ACTING.set(new_caller())
    # Not remembered: it says nothing about the text.
    assert "more than 2.0 s" in verifier.judge("2(x+1)", COSTLY).detail
    ACTING.reset(token)
    assert "more than 2.0 s" in verifier.judge("2(x+1)", COSTLY).detail
    assert sandbox.limits_s == [0.5, 0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (Status.TIMEOUT, "no time"),
        (Status.SANDBOX_ERROR, "no time"),
        (Status.SIGNAL, "crash"),
        (Status.MEMORY_LIMIT, "crash"),
    ],
)
def test_failures_are_remembered_unless_the_machine_was_at_fault(fake, status, detail):
    verifier, sandbox = fake
    sandbox.status = status
    verdicts = [verifier.judge("2(x+1)", COSTLY) for _ in range(3)]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.VERIFIER_FAILED}
    assert detail in verdicts[0].detail
    assert len(sandbox.asked) == (3 if detail == "no time" else 1)
    sandbox.status, sandbox.value = Status.OK, ["correct", ""]
    assert verifier.judge("2(x+1)", COSTLY).is_correct == (detail == "no time")


def test_an_unreadable_reference_is_a_failure_not_a_wrong_answer(verifier):
    verdict = verifier.judge(r"\frac{}{", "5")
    assert verdict.outcome is Outcome.VERIFIER_FAILED
    assert "reference" in verdict.detail


def test_model_text_is_never_evaluated(verifier, tmp_path):
    target = tmp_path / "made"
    for text in (f"__import__('pathlib').Path('{target}').touch()", f"open('{target}','w')"):
        verifier.judge("1/2", text)
        verifier.judge(text, "1/2")
    assert not target.exists()


def test_works_off_the_main_thread_and_from_several(verifier):
    pairs = [("1/2", "0.5"), ("1/2", "0.25"), (r"\sqrt{8}", r"2\sqrt{2}"), ("x+1", "1+x")]
    with ThreadPoolExecutor(6) as threads:
        verdicts = threads.map(lambda pair: verifier.judge(*pair), pairs * 6)
    assert [verdict.is_correct for verdict in verdicts] == [True, False, True, True] * 6


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        *(("5", text) for text in ("9^{9^{9^{9}}}", "(10^9)!", r"\sum_{i=1}^{10^9} i", "1+1" * 99)),
        ("1/2", "10^{999999999}"),
        (r"\sqrt{2}", "9^{9^{9}}"),
        (r"\sqrt{2}", "10^{100000000}"),
        (r"\sqrt{2}", "2^{-99999}"),
        (r"\sqrt{2}", r"\binom{10^9}{10^8}"),
        (r"\sqrt{2}", "99999999!"),
        (r"\sqrt{2}", "(" * 200 + "1" + ")" * 200),
        (r"\sqrt{2}", "}" + "{" * 400),
        (r"\sqrt{2}", "x" * (MAX_ANSWER_CHARS + 1)),
        ("5", "6"),
        ("45", r"45\text{ hours}"),
    ],
)
def test_costly_texts_never_reach_a_process(fake, reference, answer):
    verifier, sandbox = fake
    assert not verifier.judge(reference, answer, unit="minute").is_correct
    assert sandbox.asked == []


def test_neither_direction_is_asked_twice(fake):
    verifier, sandbox = fake
    verifier.equivalence("x+1", "x+2")
    assert len(sandbox.asked) == 2
    sandbox.value = ["verifier_failed", ""]
    verifier.equivalence("x+1", "x+3")
    assert len(sandbox.asked) == 3


def test_a_verifier_can_be_sent_to_another_process(verifier):
    twin = pickle.loads(pickle.dumps(verifier))
    assert (twin.num_workers, twin.timeout_s) == (verifier.num_workers, verifier.timeout_s)
    assert twin.judge("5", "5").is_correct


@pytest.mark.parametrize("number", [0, -1, "2", [1], float("nan"), float("inf"), True, 10**9])
def test_arguments_are_checked(number):
    with pytest.raises(InvalidArgument, match="num_workers"):
        Verifier(num_workers=number)
    with pytest.raises(InvalidArgument, match="timeout_s"):
        Verifier(timeout_s=number)


SPELLINGS = [
    lambda a: a,
    lambda a: a.replace("$", ""),
    lambda a: " $" + a.replace("$", "") + "$. ",
    lambda a: r"$\boxed{" + a.replace("$", "") + "}$.",
    lambda a: r"\(" + a.replace("$", "").replace(",", r",\,") + r"\).",
    lambda a: a.replace(r"\frac", r"\dfrac"),
    lambda a: a.replace("$", "").replace(r"\frac", r"\tfrac").replace(",", " , "),
]


def test_olympiadbench_references_verify_against_themselves(verifier, shared_data):
    problems = load_problems(MathProblem, shared_data("olympiadbench_sample.jsonl")).problems
    assert len(problems) == 150
    for problem in problems:
        for spell in SPELLINGS:
            answer = spell(problem.answer)
            verdict = verifier.judge(problem.answer, answer, unit=problem.unit)
            assert verdict.is_correct, (problem.answer, answer, verdict)


def test_aime_references_verify_against_themselves(verifier, shared_data):
    problems = load_problems(MathProblem, shared_data("aime_2024.jsonl")).problems
    assert len(problems) == 30
    for problem in problems:
        number = int(problem.answer)
        for answer in (f"{number:03d}", f"${number}$", f"{number}.", f"{number}.0", f"x={number}"):
            assert verifier.judge(problem.answer, answer).is_correct, answer
        for answer in (str(number + 1), str(-number), f"{number}.5", "no idea"):
            assert not verifier.judge(problem.answer, answer).is_correct, answer


def test_references_of_different_questions_rarely_agree(verifier, shared_data):
    problems = load_problems(MathProblem, shared_data("olympiadbench_sample.jsonl")).problems
    outcomes = [
        verifier.judge(first.answer, second.answer).outcome
        for first, second in itertools.pairwise(problems)
        if first.answer != second.answer
    ]
    assert set(outcomes) == {Outcome.WRONG}


PIECES = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Sm"]), max_size=20),
    st.text(r"0123456789.,+-*/^_{}()[]\=<>! ", max_size=40),
    st.tuples(st.sampled_from(["(", "[", "{", r"\frac{1}{", r"\sqrt{", "^{"]), st.integers(1, 900))
    .map(lambda pair: pair[0] * pair[1]),
    st.integers(1, 5000).map(lambda n: "7" * n),
    st.integers(1, 5000).map(lambda n: rf"0.\overline{{{'3' * n}}}"),
    st.integers(1, 400).map(lambda n: ",".join(["1"] * n)),
    st.integers(1, 300).map(lambda n: "5" + " " * n + r"\text{" * n),
    st.sampled_from([r"\boxed{", "}", "x=", r"\text{ hours}", "9^{9^{9^{9}}}", "10^{9999999}"]),
)  # fmt: skip
ANSWERS = st.lists(PIECES, min_size=1, max_size=3).map("".join)
PROBLEMS = [
    MathProblem("number", "?", "45", unit="minute"),
    MathProblem("root", "?", r"2\sqrt{3}"),
    MathProblem("interval", "?", "(1,2]"),
    MathProblem("list", "?", "1,1,2"),
]


@pytest.fixture(scope="module")
def env():
    return MathEnv(source=PROBLEMS, split=None, max_turns=1)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(boxed=ANSWERS, printed=ANSWERS, problem=st.sampled_from(PROBLEMS))
def test_a_step_returns_whatever_is_answered(env, boxed, printed, problem):
    texts = {
        "reasoner_0": rf"So \boxed{{{boxed}}}",
        "tool_0": f"```python\nprint({printed!r})\n```",
    }
    env.reset(seed=0, options={"problem": problem.id})
    steps = list(play(env, lambda env, agent: texts[agent]))
    assert len(steps) == 2
    assert all(env.terminations.values())
    assert all(-0.25 <= step["info"]["reward_parts"]["local"] <= 1 for step in steps)


FAILURE = ["verifier_failed", "more than 2 s of processor time"]


def costs_of_a_turn(verifier, sandbox, num_reasoners=30):
    """Play a turn of reasoners and a judge; return the number of comparisons of each step."""
    env = MathEnsembleEnv(
        reasoners=num_reasoners, tools=0, source=PROBLEMS[1:2], split=None, verifier=verifier
    )
    env.reset(seed=0)
    costs = []
    for number in range(len(env.possible_agents)):
        before = len(sandbox.asked)
        env.step(rf"\boxed{{x+{number}}}")
        costs.append(len(sandbox.asked) - before)
    return costs


@pytest.mark.parametrize("num_reasoners", [2, 9, 30])
def test_the_comparisons_of_a_turn_are_linear_in_the_answers(fake, num_reasoners):
    costs = costs_of_a_turn(*fake, num_reasoners)
    assert costs[:-1] == [1] * num_reasoners
    assert costs[-1] <= 1 + 2 * MAX_COMPARED_GROUPS * num_reasoners


def test_failed_comparisons_of_a_turn_have_a_budget(fake):
    verifier, sandbox = fake
    between = verifier.equivalence

    def failing(first, second, *, unit=""):
        sandbox.value = FAILURE
        return between(first, second, unit=unit)

    verifier.equivalence = failing
    assert costs_of_a_turn(*fake)[-1] <= 1 + MAX_FAILURES


def test_an_answer_that_could_not_be_judged_is_compared_as_text(fake):
    fake[1].value = FAILURE
    assert costs_of_a_turn(*fake) == [1] * 31
