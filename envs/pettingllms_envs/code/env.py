"""`CodeEnv`: a coder and a tester, and the sandbox between them; what they read and write."""

from __future__ import annotations

import functools
import io
import json
import random
import re
import tokenize
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

from pettingllms import parsing
from pettingllms.arguments import check_choice, check_kind, check_texts, check_whole
from pettingllms.env import ShellArguments, TextEnv
from pettingllms.errors import UnreachableRequest
from pettingllms.files import packaged
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import after_thinking, code_blocks, lines_of, quoted
from pettingllms.prompts import PromptTemplate, resolve_prompts
from pettingllms.sandbox import Sandbox
from pettingllms.sandbox.outcome import without_middle
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs import datasets
from pettingllms_envs.code.comparison import json_or_none
from pettingllms_envs.code.judge import Judge, Worth, default_judge, worth_of_tests
from pettingllms_envs.code.rules import (
    CodeState,
    Mismatch,
    program_value,
    with_mismatches,
    with_program,
)
from pettingllms_envs.datasets import CodeProblem, CodeTest
from pettingllms_envs.datasets.loading import ProblemTable, check_source, of_difficulty, problems_of

MAX_PROGRAM_CHARS = 50_000
MAX_TEST_CHARS = 20_000
"""Longest input and longest output of a tester's test."""
SHOWN_PROGRAM_CHARS = 6000
SHOWN_TEXT_CHARS = 800
"""Longest input or output that a prompt shows."""

FIELDS: Mapping[str, str] = {
    "problem": "the problem, with the starter code if there is one",
    "program_form": "what kind of program is asked for",
    "test_form": "what the input and output of a test must look like",
    "check": "alone: what the program is run on and what hands it in; empty in a team",
    "tests_per_turn": "maximum number of tests",
    "turn": "number of the turn, from 1",
    "max_turns": "turns of an episode",
    "history": "the standing program and the latest mismatches; empty in the first turn",
    "news": "the standing program and what happened in the turn before",
}


def read_program(text: str) -> str | ParseError:
    """Read the program of an answer; see `pettingllms.parsing`."""
    return parsing.read_program(text, MAX_PROGRAM_CHARS)


def without_comments(program: str) -> str:
    """A program without its comments and blank lines, so that two that run alike are equal.

    A program that has no tokens (it does not end its brackets or strings) is given back as it is.
    """
    # Tokens, not a syntax tree: Python's parser may take its process down on hostile nesting.
    skipped = (tokenize.COMMENT, tokenize.NL)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(program).readline))
    except (tokenize.TokenError, SyntaxError):
        return program
    kept = (one.string or tokenize.tok_name[one.type] for one in tokens if one.type not in skipped)
    return "\0".join(kept)


def read_tests(text: str, limit: int, is_call: bool) -> tuple[CodeTest, ...] | ParseError:
    """Read the last tests of a text, at most `limit` pairs of an ```input and an ```output block.

    Both blocks of a test that calls a function must be JSON.
    """
    pairs = _test_pairs(text)
    if isinstance(pairs, ParseError):
        return pairs
    tests = tuple(dict.fromkeys(pairs))[-limit:]
    if not tests:
        return ParseError("no ```input block followed by an ```output block")
    for test in tests:
        if max(map(len, test)) > MAX_TEST_CHARS:
            return ParseError(f"a test of more than {MAX_TEST_CHARS} characters")
        if not test.output.strip():
            return ParseError("a test without an expected output")
        if is_call and not isinstance(json_or_none(test.input), list):
            return ParseError("an input that is not a JSON list of arguments")
        output = json_or_none(test.output, is_returned=True)
        if is_call and output is None and test.output.strip() != "null":
            return ParseError("an output that is not JSON")
    return tests


def _test_pairs(text: str) -> list[CodeTest] | ParseError:
    answer = after_thinking(text)
    if isinstance(answer, ParseError):
        return answer
    pairs: list[CodeTest] = []
    given: str | None = None
    for block in code_blocks(answer):
        if block.label not in ("input", "output"):
            continue
        if block.extra or not block.is_closed:
            problem = "text on the line of its fence" if block.extra else "no closing fence"
            return ParseError(f"an ```{block.label} block with {problem}")
        if block.label == "input":
            given = block.content
        elif given is not None:
            pairs.append(CodeTest(given, block.content))
            given = None
    return pairs


_OWN_LINE = re.compile(
    r"\s*(?:```|turn \d+ of \d|in the last turn, the |(?:problem|input \(turn \d+\)"
    r"|expected (?:output|by the tester)|got from the program|the (?:\w+ )?program [^:]*"
    r"|tests on which [^:]*|examples that a program [^:]*):\s*$)",
    re.IGNORECASE,
)


def shown(text: str, limit: int = SHOWN_TEXT_CHARS) -> str:
    """A text fit for a prompt: quoted where it could be the prompt's own, without a long middle."""
    return quoted(without_middle(text.rstrip(), limit), _OWN_LINE)


def fields(
    problem: CodeProblem, state: CodeState, max_turns: int, tests_per_turn: int, is_alone: bool
) -> dict[str, object]:
    """The values of the placeholders in `FIELDS`."""
    latest = tuple(m for m in state.mismatches if m.turn == state.turn - 1)
    return {
        "problem": _problem_text(problem),
        "program_form": _program_form(problem),
        "test_form": _WORDS["call_form" if problem.function_name else "stdin_form"],
        "check": _WORDS["check" if problem.public_tests else "no_check"] if is_alone else "",
        "tests_per_turn": tests_per_turn,
        "turn": state.turn + 1,
        "max_turns": max_turns,
        "history": _situation(state, state.mismatches, is_alone) if state.turn else "",
        "news": _situation(state, latest, is_alone).strip(),
    }


def _problem_text(problem: CodeProblem) -> str:
    if not problem.starter:
        return problem.statement
    return f"{problem.statement}\n\nStarter code:\n```python\n{problem.starter.rstrip()}\n```"


def _program_form(problem: CodeProblem) -> str:
    name = problem.function_name
    if name is None:
        return "The program reads standard input and prints the answer to standard output."
    return f"The program defines the function {name} (or the class of the starter code)."


def _situation(
    state: CodeState,
    mismatches: tuple[Mismatch, ...],
    is_alone: bool,
    label: str | None = None,
) -> str:
    parts: list[str] = []
    if state.program is not None:
        parts.append(f"{label or _label(state)}:\n```python\n{_program(state.program)}\n```")
    parts += [f"In the last turn, {remark}." for remark in state.remarks]
    if mismatches:
        parts.append(
            "Examples that a program of yours did not pass:"
            if is_alone
            else "Tests on which program and test did not agree; either may be wrong:"
        )
        parts += (_mismatch_text(mismatch, is_alone) for mismatch in mismatches)
    return "\n\n" + "\n\n".join(parts) if parts else ""


def _label(state: CodeState) -> str:
    if any(remark.startswith("the coder ") for remark in state.remarks):
        return "The latest program that could be read"
    return "The program of the last turn"


def _program(source: str) -> str:
    return shown(source, SHOWN_PROGRAM_CHARS)


def _mismatch_text(mismatch: Mismatch, is_alone: bool) -> str:
    expected = "Expected output" if is_alone else "Expected by the tester"
    return (
        f"Input (turn {mismatch.turn + 1}):\n{shown(mismatch.input)}\n"
        f"{expected}:\n{shown(mismatch.expected)}\n"
        f"Got from the program:\n{shown(mismatch.actual)}"
    )


_WORDS: Mapping[str, str] = packaged("pettingllms_envs.code")


def team_prompts(is_alone: bool) -> dict[str, PromptTemplate]:
    """The prompts of the coder, alone or with a tester, and of the tester."""
    task, news, asked = _WORDS["task"], _WORDS["news"], _WORDS["ask_test"]
    coder = _WORDS["coder"] + _WORDS["single_coder" if is_alone else "team_coder"]
    return {
        "coder": PromptTemplate(coder, task + _WORDS["ask_program"], news + _WORDS["ask_again"]),
        "tester": PromptTemplate(_WORDS["tester"], task + asked, news + asked),
    }


def board(problem: CodeProblem, state: CodeState, is_alone: bool) -> str:
    """The state as readable text."""
    verdict = f"{state.num_passed} of {len(problem.tests)} golden tests passed"
    tests = "".join(f"\n\ntest input:\n{t.input}\nexpected:\n{t.output}" for t in state.tests)
    situation = _situation(state, state.mismatches, is_alone, "The present program")
    return f"{problem.id}\n{problem.statement}\n\n{verdict}{situation}{tests}"


_MAX_ORACLE_TEST_CHARS = 2000
_CONSTANT = CodeTest("1\n", "1\n")
_CONSTANT_CALL = CodeTest("[1]", "1")


def scripted_text(problem: CodeProblem, role: str, policy: str, judge: Judge) -> str:
    """What a scripted policy writes in a role.

    Raises:
        UnreachableRequest: The problem has no solution for the policy `oracle`.
    """
    if policy == "oracle" and problem.solution is None:
        raise UnreachableRequest(
            f"the problem {problem.id} has no solution for the policy 'oracle'. "
            "Use a source with solutions, or another policy."
        )
    return program_of(problem, policy) if role == "coder" else tests_of(problem, policy, judge)


def program_of(problem: CodeProblem, policy: str) -> str:
    """A coder's text: the solution, a program that prints 0, or the example's output."""
    if policy == "oracle":
        source = problem.solution or ""
    else:
        output = "0"
        if policy == "example" and problem.public_tests:
            output = problem.public_tests[0].output.strip()
        if problem.function_name is None:
            source = f"print({output!r})\n"
        else:
            source = f"def {problem.function_name}(*args):\n    return {_literal(output)}\n"
    return f"```python\n{source.rstrip()}\n```"


def _literal(text: str) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return repr(text)


def tests_of(problem: CodeProblem, policy: str, judge: Judge) -> str:
    """A tester's text: a right and telling test, a constant one, or the example."""
    if policy == "oracle":
        test = _telling_test(problem, judge)
    elif policy == "example" and problem.public_tests:
        test = problem.public_tests[0]
    else:
        test = _CONSTANT if problem.function_name is None else _CONSTANT_CALL
    given, wanted = (text.removesuffix("\n") for text in test)
    return f"```input\n{given}\n```\n```output\n{wanted}\n```"


def _telling_test(problem: CodeProblem, judge: Judge) -> CodeTest:
    """The golden test that exposes the most known-bad programs, short ones preferred."""
    bad = judge.bad_programs(problem)

    def merit(number: int) -> tuple[bool, bool, int, int]:
        test = problem.tests[number]
        exposed = sum(number in program.failed for program in bad)
        is_short = len(test.input) <= _MAX_ORACLE_TEST_CHARS
        return is_short, judge.adds_to_examples(problem, test), exposed, -len(test.input)

    return problem.tests[max(range(len(problem.tests)), key=merit)]


BUILTIN = "builtin"
_PATH = str(resources.files("pettingllms_envs.code").joinpath("builtin.jsonl"))


@functools.cache
def builtin_problems() -> Mapping[str, CodeProblem]:
    """The problems written for this project, by id, in a fixed order.

    The outputs of their tests were computed by a second program, independent of `solution`.
    """
    # Shared by all environments of the process, none of which may change it.
    return MappingProxyType({p.id: p for p in problems_of(CodeProblem, _PATH, None, None)})


def problem_table(
    source: str | Path | Sequence[CodeProblem],
    split: str | None,
    schema: str | None,
    labels: str | Sequence[str] | None,
    max_tests: int | None,
    judge: Judge | None = None,
) -> ProblemTable[CodeProblem]:
    """The problems of an environment, by id; arguments as those of `CodeEnv`.

    `judge` plays a problem that is not built in with its own solution; see `ProblemTable`.

    Raises:
        InvalidArgument: An argument is out of its range.
        UnreachableRequest: No problem is left.
    """
    if max_tests is not None:
        check_whole("max_tests", max_tests, 1)
    wanted = (labels,) if isinstance(labels, str) else labels
    if wanted is not None:
        check_texts("labels", wanted, "None, a difficulty, or a sequence of difficulties")
    check_source(source, split, schema, CodeProblem)
    named = _PATH if source == BUILTIN else source
    problems = problems_of(CodeProblem, named, split, schema)
    if wanted is not None:
        problems = of_difficulty(problems, wanted)
    # Tests are cut here, so that worth and rewards are over what is run.
    cut = [p._replace(tests=p.tests[:max_tests]) for p in problems]
    if source == BUILTIN or judge is None:
        return ProblemTable(cut, None)
    return ProblemTable(cut, judge.played, judge.num_starved)


TEAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "coder-tester": (("coder_0", "tester_0"),),
    "single": (("coder_0",),),
}

MAX_TESTS_PER_TURN = 16

UNREADABLE_COST = -0.25
"""Local reward of a text without a program or test, divided by the number of turns."""


@page(split="test", difficulty="easy")
class CodeEnv(TextEnv[CodeState]):
    """Write a program while a team-mate writes tests for it, until both agree.

    ## Task

    A programming problem: a Python program from standard input to standard output, or a function.
    Hidden (golden) tests decide whether it is solved. Built-in problems need no download; public
    data sets are loaded from files or the hub.

    ## Agents and roles

    `coder_0` writes a program, `tester_0` a test; both act on what was known at the start of the
    turn. `team="single"`: `coder_0` alone; the examples of the problem take the tester's place.

    ## Observation

    The problem, the turn, and from the second turn on the standing program and the latest tests on
    which program and tester did not agree. Golden tests and their verdicts are never shown.
    `prompt_fields` lists the placeholders of prompts.

    ## Action

    Coder: the last ```python block is the program. Tester: the last ```input blocks, each followed
    by an ```output block, are the tests; for a function the JSON list of its arguments and the
    JSON of its value. Printed texts are compared token by token, decimal numbers to 1e-6; where an
    integer is expected, the value must be exactly that number. The case of letters is free where
    the statement says so, and a checker of the data set judges other outputs than the expected one.

    Cost of one action at most: a program runs once per golden test, but not again when 2 runs have
    exceeded the time limit (so at most 5 do), and with a limit of 1 s after its first failed test.
    A test costs a run of the solution (or of up to 4 passing programs), of at most 6 known-bad
    programs (1 s each), and of the program of the turn. The time limit is one of processor time;
    on the clock a run may take three times that and 2 s, and a program that sleeps holds one of the
    sandbox's workers for that long in each run. Verdicts are remembered.

    ## Reward

    The standing program is the latest that could be read; p is the share of golden tests that it
    passes. The worth w of the latest readable tests is the share of them that are right and new,
    times the share of known-bad programs that these tell from right ones. Right: the solution gives
    the expected output. New: neither an example, however it is written, nor an example to which
    something without effect was added. Known-bad: wrong programs of the data set, and variants of
    its solution, that pass some test and fail a golden one, and that no thoughtless test exposes:
    an example with a line of its input reversed, sorted, doubled or left out, or a number one
    larger or smaller, and its output unchanged or with a number changed likewise. They pass all
    examples, unless fewer than 3 do. Programs of the episode do not count, so no coder can help a
    tester. Without a solution, programs of this episode that passed all golden tests judge; before
    there is one, and where no program is known to be bad, w is 0. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | coder | change of p + [p = 1] |
    | local | coder | change of p |
    | local | tester | change of w |
    | local | text without a program or test | -0.25 / T |

    Summed over an episode the team part lies in [0, 2] (2: solved), the coder's local part in
    [-0.25, 1], the tester's in [-0.25, 1], whatever the number of turns: repeating, oscillating
    and drawing out an episode pay nothing. Of a single action, a team part lies in [-2, 2], a local
    part in [-1, 1].

    ## Termination

    Terminated when the program of this turn passes the tests of this turn (alone: all examples, or
    the same program twice where there are none), or after `max_turns` turns; the standing program
    is then handed in. `success`: it passes all golden tests. There is no truncation.

    ## Info keys

    - `problem`: id of the problem.
    - `golden_passed`: (coder) golden tests that the standing program passes.
    - `golden_total`: (coder) golden tests.
    - `tests_given`: (tester) tests that were read.
    - `tests_right`: (tester) of these, tests that agree with the solution and repeat no example.
    - `bad_known`: (tester) known-bad programs that no thoughtless test exposes.
    - `bad_exposed`: (tester) of these, programs that the right tests tell from right ones.
    - `judged_by`: (tester) `solution`, `passing programs`, or `nobody`.
    - `agreed`: (last agent of a turn) whether the program passed the tests.

    ## Arguments

    - `team`: `"coder-tester"` or `"single"`.
    - `source`: `"builtin"`, a file, a hub data set, or a sequence of `CodeProblem`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all). Built-in problems and files: a
      share of the problems by id; hub data sets: their own splits.
    - `labels`: difficulties to keep, in the source's words; None: all. Built-in problems are
      `"introductory"`, `"easy"`, `"medium"` or `"hard"`.
    - `max_tests`: maximum number of golden tests of a problem; None: all.
    - `tests_per_turn`: maximum number of tests of a tester's turn, 1 to 16.
    - `history`: number of mismatches that prompts show, at least 1.
    - `render_mode`: `"ansi"` or `"human"`; shows the golden verdict.

    `reset(options={"problem": id})` chooses a problem.

    ## Source

    The coding workflow of Stronger-MAS (arXiv 2510.11062). Changed: code runs in a sandbox,
    testers are also judged by the wrong programs that their tests expose, and rewards are
    differences, so that time does not pay.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "code_v0",
        "render_modes": ["ansi", "human"],
        "unseen_arguments": ("schema", "history"),
    }
    fetched_arguments: ClassVar[tuple[str, ...]] = ("source",)
    data_checks: ClassVar[Any] = datasets
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "constant", "example")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"labels": ["introductory", "easy"]},
            "hard": {"labels": ["medium", "hard"]},
        },
        toys={"easy": 7, "hard": 2},
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = team_prompts(is_alone=False)
    prompt_fields: ClassVar[Mapping[str, str]] = FIELDS

    @staticmethod
    def played(problem: CodeProblem) -> tuple[CodeProblem, str]:
        """A problem as its own solution solves it, and why that solves none of it, or ""."""
        return default_judge().played(problem)

    def __init__(
        self,
        *,
        team: str = "coder-tester",
        source: str | Path | Sequence[CodeProblem] = "builtin",
        split: str | None = "train",
        schema: str | None = None,
        labels: str | Sequence[str] | None = None,
        max_tests: int | None = None,
        tests_per_turn: int = 1,
        max_turns: int = 4,
        history: int = 4,
        sandbox: Sandbox | None = None,
        **shell: Unpack[ShellArguments],
    ) -> None:
        check_choice("team", team, TEAMS)
        check_whole("tests_per_turn", tests_per_turn, 1, MAX_TESTS_PER_TURN)
        check_whole("history", history, 1)
        check_kind("sandbox", sandbox, Sandbox | None, "None or a pettingllms.sandbox.Sandbox")
        stages = TEAMS[team]
        templates = team_prompts(is_alone=team == "single")
        roles = {role_of(agent): templates[role_of(agent)] for agent in stages[0]}
        shell["prompts"] = resolve_prompts(roles, shell.get("prompts"), FIELDS)
        super().__init__(
            stages=stages,
            max_turns=max_turns,
            **shell,
        )
        self._is_alone = team == "single"
        self._tests_per_turn = tests_per_turn
        self._history = history
        self._judge = Judge(sandbox) if sandbox else default_judge()
        self._problems = problem_table(source, split, schema, labels, max_tests, self._judge)

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> CodeState:
        return CodeState(self._problems.draw(rng, options).id)

    def _fields(self, state: CodeState, agent: str, turn: int) -> Mapping[str, object]:
        problem = self._problems[state.problem_id]
        return fields(problem, state, self.max_turns, self._tests_per_turn, self._is_alone)

    def _parse(
        self, state: CodeState, agent: str, text: str
    ) -> str | tuple[CodeTest, ...] | ParseError:
        if role_of(agent) == "coder":
            return read_program(text)
        problem = self._problems[state.problem_id]
        return read_tests(text, self._tests_per_turn, problem.function_name is not None)

    def _key_json(self, state: CodeState) -> Any:
        # A test is paid by the program that it meets, and ends the episode if that is of this turn.
        program = None if state.program is None else without_comments(state.program)
        return [state.problem_id, program, state.test_value, state.is_program_new]

    def _ansi(self, state: CodeState) -> str:
        return board(self._problems[state.problem_id], state, self._is_alone)

    def _act(self, state: CodeState, agent: str, action: Any) -> Transition:
        if role_of(agent) == "coder":
            # Last turn's remarks and tests are gone before the first agent of a turn acts.
            start = state._replace(remarks=(), tests=(), is_program_new=False)
            return self._code(start, action)
        return self._test(state, action)

    def _code(self, state: CodeState, action: str | ParseError) -> Transition:
        problem = self._problems[state.problem_id]
        total = len(problem.tests)
        if isinstance(action, ParseError):
            remark = f"the coder gave {action.reason}"
            after, local = state._replace(remarks=(*state.remarks, remark)), self._cost()
        else:
            num_passed = sum(self._judge.passes(problem, action, problem.tests))
            after, local = with_program(state, action, num_passed, total), 0.0
        team = program_value(after.num_passed, total) - program_value(state.num_passed, total)
        local += (after.num_passed - state.num_passed) / total
        info = {
            "problem": problem.id,
            "golden_passed": after.num_passed,
            "golden_total": total,
        }
        done = Transition(after, team, local, info=info)
        if not self._is_alone:
            return done
        if not problem.public_tests:
            repeats = after.is_program_new and after.program == state.program
            return self._close(done._replace(info={**info, "agreed": repeats}))
        return self._compare(done, problem.public_tests)

    def _test(self, state: CodeState, action: tuple[CodeTest, ...] | ParseError) -> Transition:
        problem = self._problems[state.problem_id]
        if isinstance(action, ParseError):
            remark = f"the tester gave {action.reason}"
            after = state._replace(remarks=(*state.remarks, remark))
            worth = Worth(0, 0, 0, 0, "nobody", state.test_value)
            info = {"problem": problem.id, **worth.facts(), "agreed": False}
            return self._close(Transition(after, 0.0, self._cost(), info=info))
        worth = worth_of_tests(self._judge, problem, action, state.passing)
        after = state._replace(tests=action, test_value=worth.value)
        local, info = worth.value - state.test_value, {"problem": problem.id, **worth.facts()}
        return self._compare(Transition(after, 0.0, local, info=info), action)

    def _compare(self, done: Transition, tests: tuple[CodeTest, ...]) -> Transition:
        """Run the program of this turn on tests, and end the turn."""
        state: CodeState = done.state
        agreed = False
        if state.is_program_new and state.program is not None:
            problem = self._problems[state.problem_id]
            runs = self._judge.run(problem, state.program, [test.input for test in tests])
            found = tuple(
                Mismatch(state.turn, test.input, test.output, run.reported)
                for run, test in zip(runs, tests, strict=True)
                if not self._judge.matches(problem, run, test)
            )
            agreed = not found
            state = with_mismatches(state, found, self._history)
        return self._close(done._replace(state=state, info={**done.info, "agreed": agreed}))

    def _close(self, done: Transition) -> Transition:
        """End the turn: hand the program in, or continue."""
        state: CodeState = done.state
        if not done.info["agreed"] and state.turn + 1 < self.max_turns:
            return done._replace(state=state._replace(turn=state.turn + 1, is_program_new=False))
        total = len(self._problems[state.problem_id].tests)
        return done._replace(terminated=True, success=state.num_passed == total)

    def _cost(self) -> float:
        return UNREADABLE_COST / self.max_turns

    def _scripted(self, state: CodeState, agent: str, policy: str, rng: random.Random) -> str:
        problem = self._problems[state.problem_id]
        return scripted_text(problem, role_of(agent), policy, self._judge)

    def _worked(self, state: CodeState, agent: str, answer: str) -> Sequence[str]:
        return lines_of(answer)
