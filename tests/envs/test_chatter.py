"""Answers inside chatter: what is meant is read, or nothing; never another answer.

`chatter.json` has the parts of chatty texts: what precedes an answer, what wraps it, what follows
it, and whole texts. `A` is the answer of one of the game's scripted policies, `D` and `E` are other
answers of the same agent at the same moment. `python tests/envs/test_chatter.py` prints the table
of docs/answers.md.
"""

import itertools
import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.types import ParseError
from pettingllms_envs.code.env import read_tests
from pettingllms_envs.datasets import CodeTest
from pettingllms_envs.math.text import read_solution
from pettingllms_envs.python_tool import read_program

PARTS = json.loads(Path(__file__).with_name("chatter.json").read_text("utf-8"))
NUM_TEXTS = 5000
SINGLE = {"team": "single"}
GAMES = {
    "plan_path_v0": ("lists", SINGLE),
    "sokoban_v0": ("lists", SINGLE),
    "sudoku_v0": ("lists", SINGLE),
    "queens_v0": ("lists", SINGLE),
    "blocksworld_v0": ("lists", SINGLE),
    "plan_path_v0 with calls": ("calls", {"tool": "call"}),
    "dining_v0": ("words", {}),
    "fireworks_v0": ("words", {}),
    "panel_v0": ("words", {}),
    "relay_v0": ("words", {}),
    "search_v0": ("words", {}),
    "math_v0": ("boxes and programs", {}),
    "code_v0": ("boxes and programs", {}),
}
# Any words are a message or a query, so that nothing behind them can be told from another one.
FREE = ("witness_0", "searcher_0")
BELOW = re.compile(r"\Z|\n(?!.*####)", re.DOTALL)


def moments(game, seeds):
    """Environments at moments of episodes: the agent to act, its answer, and two other answers."""
    env_id = game.partition(" ")[0]
    for seed in seeds:
        env = pettingllms.make(env_id, **GAMES[game][1])
        env.reset(seed=seed)
        rng = random.Random(seed)
        for _ in range(3):
            agent = env.agent_selection
            text = env.scripted_action(agent, "oracle", rng)
            if GAMES[game][0] == "boxes and programs" or text.startswith("#### "):
                policies = [one for one in env.unwrapped.scripted_policies if one != "oracle"]
                drawn = [env.scripted_action(agent, one, rng) for one in policies * 4]
                texts = list(dict.fromkeys([text, *drawn]))
                known = {one: env.parse(agent, one) for one in texts}
                others = [
                    one.removeprefix("#### ")
                    for one in texts
                    if not isinstance(known[one], ParseError)
                    and known[one] != known[text]
                    and " say " not in one  # what is said may be any words, `D` among them
                ]
                if len(others) > 1:
                    yield env.fork(), agent, text, others
            env.step(text)
            if env.terminations[agent] or env.truncations[agent] or not env.agents:
                break


def filled(text, answer, *others):
    """A text with the answers in place of A, D and E."""
    words = {"A": answer, "D": others[0], "E": others[1]}
    pieces = re.split(r"(?<![A-Za-z])([ADE])(?![A-Za-z])", text)
    return "".join(words.get(piece, piece) for piece in pieces)


def pattern(kind, is_free, rng):
    """A text with A, D and E; whether it is unambiguous; and whether it means A."""
    if kind == "boxes and programs":
        text, is_clear = rng.choice(list(PARTS["blocks"].values()))
        return text, is_clear, True
    if not is_free and rng.random() < 0.25:
        text, meant = rng.choice(list(PARTS["whole"].values()))
        return text, False, meant == "A"
    after = "harmless" if rng.random() < 0.7 else "after"
    # Any words behind a query or message are a part of it.
    behind = [one for one in PARTS[after].values() if not is_free or BELOW.match(one)]
    dresses = [name for name in PARTS["dress"] if not (is_free and "label" in name)]
    dress = PARTS["dress"][rng.choice(dresses)]
    if kind != "lists":
        dress = dress.replace('": A', '": "A"')
    before = rng.choice(list(PARTS["before"].values()))
    return before + dress + rng.choice(behind), after == "harmless", True


def read(env, agent, text):
    """What a text asks for, without the words around it."""
    found = env.parse(agent, text)
    return getattr(found, "answer", found)


def corpus():
    """Counts by kind of answer; the texts executed wrongly; the unambiguous ones refused."""
    rng, pool = random.Random(0), {game: list(moments(game, range(4))) for game in GAMES}
    counts, wrong, refused = defaultdict(Counter), [], []
    games = list(GAMES)
    for number in range(NUM_TEXTS):
        game = games[number % len(games)]
        kind = GAMES[game][0]
        env, agent, answer, others = rng.choice(pool[game])
        template, is_clear, is_meant = pattern(kind, agent in FREE or " say " in answer, rng)
        text = filled(template, answer.removeprefix("#### "), *rng.sample(others, 2))
        found, wanted = read(env, agent, text), read(env, agent, answer)
        is_read = not isinstance(found, ParseError)
        is_wrong = is_read and not (is_meant and found == wanted)
        is_refused = is_clear and not is_read
        counts[kind].update(texts=1, wrong=is_wrong, clear=is_clear, refused=is_refused)
        wrong += [(game, text, found)] * is_wrong
        refused += [(game, text, found)] * is_refused
    return counts, wrong, refused


def table(counts):
    """The rows of the table of docs/answers.md."""
    total = Counter()
    for one in counts.values():
        total.update(one)
    rows = [
        "| answers | texts | executed wrongly | unambiguous but refused |",
        "|---|---|---|---|",
    ]
    for kind, one in [*counts.items(), ("all", total)]:
        # In steps of five percents, so that another level does not change the page.
        share = -(-20 * one["refused"] // one["clear"]) * 5
        refused = f"at most {share} %" if share else "none"
        rows.append(f"| {kind} | {one['texts']:,} | {one['wrong']} | {refused} |")
    return "\n".join(rows)


@pytest.fixture(scope="module")
def played():
    return corpus()


def test_no_chatter_turns_an_answer_into_another(played):
    assert not played[1]


def test_what_is_unambiguous_is_read(played):
    counts, _, refused = played
    assert len(refused) <= 0.05 * sum(one["clear"] for one in counts.values()), refused[:20]


def test_the_page_has_the_table(played):
    page = Path(__file__).parents[2].joinpath("docs", "answers.md").read_text("utf-8")
    assert table(played[0]) in page, "python tests/envs/test_chatter.py prints the rows"


if __name__ == "__main__":
    print(table(corpus()[0]))


CODE = json.loads(Path(__file__).with_name("chatter_programs.json").read_text("utf-8"))
"""By name: what stands before a program, how it is dressed (in place of A), and what follows."""
BEFORE_CODE, DRESS_CODE, AFTER_CODE = CODE["before"], CODE["dress"], CODE["after"]
MUST_READ = ("as asked", "py", "capitals", "CRLF", "spaces", "four ticks", "attributes", "indented")


def program_text(before, dress, after):
    line_end = "" if before == "one line" else "\n"
    program = DRESS_CODE[dress].replace("A", "print(1)")
    return BEFORE_CODE[before] + line_end + program + AFTER_CODE[after]


NO_READER_CAN_TELL = {
    ("never closed", "an open block"),  # the fence of the open block closes the program
    ("closed at the end of a line", "an open block"),
    ("an open program", "no label"),
    ("a draft", "no label"),  # labelled blocks win
}


def test_no_chatter_turns_a_program_into_another():
    for before, dress, after in itertools.product(BEFORE_CODE, DRESS_CODE, AFTER_CODE):
        if {(dress, after), (before, dress)} & NO_READER_CAN_TELL:
            continue
        read = read_program(program_text(before, dress, after))
        indent = "  " if (before, dress) == ("one line", "indented") else ""
        kind = (before, dress, after)
        assert isinstance(read, ParseError) or read == f"{indent}print(1)\n", kind
        is_open = after == "an open block" or {"an open thought", "an open program"} & set(kind)
        assert not isinstance(read, ParseError) or dress not in MUST_READ or is_open, kind


BOXES = CODE["boxes"]
"""What stands before a boxed answer, how it is dressed, what follows, and answers."""


@given(*map(st.sampled_from, BOXES.values()))
def test_no_chatter_turns_a_boxed_answer_into_another(before, dress, after, answer):
    read = read_solution(before + dress.replace("A", answer) + after, is_program=False)
    assert isinstance(read, ParseError) or read.answer == answer
    assert not isinstance(read, ParseError) or "{A}" not in dress or "\\boxed" in after


TEST = "```input\n1\n```\n```output\n2\n```"


@given(
    st.sampled_from(["", "Like this:\n", "```python\nprint(1)\n```\n", f"<think>{TEST}</think>\n"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(
        ["", "\nDone.", "\n```python\nprint(2)\n```", "\n```\n9\n```", "\n```input\n9"]
    ),
)
def test_no_chatter_turns_a_test_into_another(before, line_end, after):
    text = before + "```input\n5\n```\nso\n```output\n6\n```".replace("\n", line_end) + after
    read = read_tests(text, 1, is_call=False)
    assert isinstance(read, ParseError) or read == (CodeTest("5\n", "6\n"),)
    assert not isinstance(read, ParseError) or "```input" in after
