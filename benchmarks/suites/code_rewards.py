"""What honest and degenerate coders and testers earn in `code_v0`.

    python benchmarks/suites/code_rewards.py [--problems 40] [--contests FILE]

Every tester plays one turn next to a coder that is right, and every coder one next to the reference
tester, on a sample of the built-in problems and, with `--contests`, of a file of CodeContests.
Written is the mean of the agent's own (local) rewards per episode: at most 1, at least -0.25. The
team's part, which no tester can change in one turn, is left out.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from measuring import frame, parser_of, write

from pettingllms_envs.code import CodeEnv, builtin_problems
from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.code.known_bad import EDITS
from pettingllms_envs.datasets import CodeProblem, CodeTest, load_code_problems

Writer = Callable[[CodeProblem], str]
"""What an agent writes for a problem."""


def test_text(given: str, wanted: str) -> str:
    """Return how a tester writes a test."""
    return f"```input\n{given.rstrip()}\n```\n```output\n{wanted.rstrip()}\n```"


def program_text(source: str) -> str:
    """Return how a coder writes a program."""
    return f"```python\n{source}\n```"


def _example(problem: CodeProblem, change: Callable[[str], str]) -> str:
    shown = problem.public_tests[0]
    return test_text(change(shown.input.rstrip("\n")), shown.output)


def _respelled(text: str) -> str:
    words = (f"0{word}" if word.isdigit() else word for word in text.split(" "))
    return "  ".join(words) + " \n"


def _written(test: CodeTest) -> str:
    return test_text(*test)


def _bad_program(problem: CodeProblem) -> str:
    bad = default_judge().bad_programs(problem)
    return program_text(bad[0].source if bad else "pass")


TESTERS: Mapping[str, Writer] = {
    "no test": lambda problem: "I do not know.",
    "a guess": lambda problem: test_text("1", "1"),
    "the example": lambda problem: _example(problem, lambda text: text),
    "the example, respelled": lambda problem: _example(problem, _respelled),
    "the example and a line of junk": lambda problem: _example(problem, lambda t: f"{t}\njunk"),
    "the example and a line of numbers": lambda problem: _example(problem, lambda t: f"{t}\n7 7"),
    "the example and a word of junk": lambda problem: _example(
        problem, lambda text: text.replace("\n", " 7\n", 1)
    ),
    "the example, last line reversed": lambda problem: _example(
        problem, EDITS["last line reversed"]
    ),
    "the example, last number plus one": lambda problem: _example(
        problem, EDITS["last number plus one"]
    ),
    "shortest right test": lambda problem: _written(min(problem.tests, key=lambda t: len(t.input))),
    "random right test": lambda problem: _written(
        random.Random(problem.id).choice([t for t in problem.tests if len(t.input) <= 20_000])
    ),
}
"""What testers write, besides the scripted policy: the degenerate ones first."""

NUM_DEGENERATE_TESTERS = 9

CODERS: Mapping[str, Writer] = {
    "no program": lambda problem: "I do not know.",
    "a program that crashes": lambda problem: program_text("print(1 / 0)"),
    "a program that prints zzz": lambda problem: program_text("print('zzz')"),
    "a program that prints 0": lambda problem: program_text("print(0)"),
    "the example's output": lambda problem: program_text(
        f"print({problem.public_tests[0].output.strip()!r})"
    ),
    "a known-bad program": _bad_program,
    "the reference program": lambda problem: program_text(problem.solution or ""),
}
"""What coders write, in the expected order of their rewards."""


def local_reward(problem: CodeProblem, coder: str, tester: str | None) -> dict[str, float]:
    """Play one turn and return each agent's own rewards; None: the reference tester."""
    env = CodeEnv(source=[problem], split=None, max_turns=1)
    env.reset(seed=0)
    env.step(coder)
    env.step(tester or env.scripted_action("tester_0", "oracle", random.Random(0)))
    return {agent: env.infos[agent]["reward_parts"]["local"] for agent in env.possible_agents}


def ladder(problems: Sequence[CodeProblem]) -> dict[str, dict[str, float]]:
    """Return the mean rewards of every tester and coder over problems with an example."""
    right = CODERS["the reference program"]
    testers = {
        name: [local_reward(p, right(p), write_test(p))["tester_0"] for p in problems]
        for name, write_test in TESTERS.items()
    }
    testers["reference tester"] = [local_reward(p, right(p), None)["tester_0"] for p in problems]
    coders = {
        name: [local_reward(p, write_program(p), None)["coder_0"] for p in problems]
        for name, write_program in CODERS.items()
    }
    sides = {"testers": testers, "coders": coders}
    return {
        side: {name: round(statistics.fmean(values), 4) for name, values in found.items()}
        for side, found in sides.items()
    }


def main() -> None:
    """Measure, print and write the result file."""
    parser = parser_of("code_rewards", __doc__)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--contests", type=Path)
    options = parser.parse_args()
    result = frame("code_rewards", [0])
    sources = {"built-in": list(builtin_problems().values())}
    if options.contests:
        sources["CodeContests"] = list(load_code_problems(options.contests).problems)
    result["sources"] = {}
    for name, problems in sources.items():
        shown = [problem for problem in problems if problem.public_tests]
        shown = random.Random(0).sample(shown, min(options.problems, len(shown)))
        counts = [len(default_judge().bad_programs(problem)) for problem in shown]
        facts = {"num_problems": len(shown), "num_without_bad_programs": counts.count(0)}
        result["sources"][name] = {**facts, **ladder(shown)}
        print(name, result["sources"][name], flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
