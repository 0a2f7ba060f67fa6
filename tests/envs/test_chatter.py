"""Correct answers inside chatter: that answer is read, or none; never another one.

A chatty text is made of what precedes the answer, of a dress for the answer itself and of what
follows it. `D` and `E` are other well-formed answers of the same environment.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.types import ParseError
from pettingllms_envs.dining.rules import CHOICES
from pettingllms_envs.dining.text import Move, read_move
from pettingllms_envs.fireworks.rules import Discard, Hint, Play, Rules
from pettingllms_envs.fireworks.text import action_text, read_action
from pettingllms_envs.panel.text import (
    FinalAnswer,
    GiveFloor,
    Statement,
    read_expert,
    read_moderator,
)
from pettingllms_envs.plan_path.env import HelperCall, read_call
from pettingllms_envs.planning.env import moves_json, read_moves
from pettingllms_envs.relay import RelayEnv
from pettingllms_envs.search import SearchEnv
from pettingllms_envs.sudoku.rules import FillAnswer
from pettingllms_envs.sudoku.text import fills_json, read_answer

BOARD = "######\n#@$ .#\n####\n  0 1 2\n0 # # #\n1 # @ -\n"

BEFORE = {
    "nothing": "",
    "two weighed": "I weighed D against E.\n",
    "first idea": "First idea: D. No, that is wrong.\n",
    "bullets": "Options:\n- D\n- E\n- **D**\n\n",
    "numbers": "1. D is blocked.\n2) E is long.\n",
    "table": "| option | verdict |\n|---|---|\n| D | no |\n| E | no |\n",
    "quote": "> D\n> was proposed.\n\n",
    "fence": "```json\nD\n```\nis what the proposer says.\n",
    "inline code": "`D` or `E`?\n",
    "bold": "**D** looks good, *E* better.\n",
    "LaTeX": "Let \\[ D \\] and $E$, so \\boxed{D}.\n",
    "JSON": '{"rejected": D, "reason": "[blocked]"}\n',
    "pretty JSON": '{\n  "options": [\n    D,\n    E\n  ]\n}\n',
    "thinking": "<think>\nMaybe D?\n#### D\n</think>\n",
    "thinking in the prompt": "so D.\n#### E\n</think>\n\n",
    "two thoughts": "<think>D</think> Hm. <thinking>\nE\n</thinking>\n",
    "an earlier answer": "#### D\nWait, that loses.\n",
    "an earlier heading": "#### Options\nD\n#### Verdict\n",
    "headings": "# Plan\n## Step 1\n### D\n##### E\n",
    "a board": f"The board is\n{BOARD}so D fails.\n",
    "a board in a fence": f"```\n{BOARD}```\n",
    "German": "Ich könnte D spielen, aber E ist kürzer.\n",
    "Chinese": "首先考虑D\uff0c然后是E\u3002\n",
    "Arabic": "\u0641\u0643\u0631\u062a \u0641\u064a D \u062b\u0645 E.\n",
    "Hindi": "\u092a\u0939\u0932\u0947 D \u092b\u093f\u0930 E\u0964\n",
    "emoji": "\U0001f914 D \U0001f62c E \U0001f389\n",
    "CRLF": "I weighed D\r\nagainst E.\r\n",
    "an open bracket": "The interval [0, 3) and D\n",
    "links": "See [1] and [the rules](https://example.org/a_(b)).\n",
    "a program": "```python\nprint(D)\n```\n",
    "tags": "<scratchpad>D</scratchpad><answer>E</answer>\n",
    "curly quotes": "\u201cD\u201d or \u2018E\u2019?\n",
    "surrogates": "\ud800 D \udfff\n",
    "signs": "#!/$%&/()=?`\\ D {[]} ~~\n",
    "a long digression": "D and E, over and over. " * 20 + "\n",
    "huge numbers": "9" * 5000 + " [" + "9" * 5000 + "]\n",
    "deep nesting": "[" * 300 + "]" * 300 + "\n",
}
DRESS = {
    "as asked": "#### A",
    "no space": "####A",
    "tab": "####\tA",
    "next line": "####\nA",
    "blank line": "####\n\nA",
    "bold": "#### **A**",
    "all bold": "**#### A**",
    "inline code": "#### `A`",
    "fence": "####\n```json\nA\n```",
    "fence with heading": "#### Final answer\n\n```\nA\n```",
    "label": "#### Answer: A",
    "bold label": "#### **Final answer:** A",
    "Chinese label": "#### 答案\uff1aA",
    "Hindi label": "#### \u0909\u0924\u094d\u0924\u0930: A",
    "label with arrow": "#### My choice -> A",
    "label on its line": "#### The answer\nA",
    "JSON": '#### {"answer": A}',
    "pretty JSON": '####\n{\n  "answer": A\n}',
    "full stop": "#### A.",
    "exclamation": "#### A!",
    "LaTeX": "#### $A$",
    "boxed": "#### \\boxed{A}",
    "quoted": "> #### A",
    "bullet": "- #### A",
    "tag": "#### <answer>A</answer>",
    "end of turn": "#### A<|im_end|>",
    "CRLF": "####\r\nA\r\n",
    "trailing spaces": "#### A   \n\n  ",
}
AFTER = {
    "nothing": "",
    "walls": "\nThe walls I avoided: []",
    "rejected": "\nI rejected D and E.",
    "own line": "\nD would be longer.",
    "paragraph": "\n\nD\n\nwas the proposal.",
    "bullets": "\n\nWhy not the others:\n- D: blocked\n- E: too long",
    "bullets at once": "\n- D: blocked\n- E: too long",
    "quote": "\n> D, said the proposer",
    "fence": "\n```\nD\n```",
    "table": "\n| D | no |\n| E | no |",
    "same line": " because D is blocked",
    "brackets": " (not D)",
    "or": " or D",
    "JSON": '\n{"alternatives": [D, E]}',
    "footnote": "\n[1] see above",
    "explanation": "\n\n#### Explanation\nI preferred it to D.",
    "list in an explanation": "\n\n#### Explanation\nD is blocked.",
    "several in an explanation": "\n\n#### Why not\nD\nE\nare worse.",
    "mention of the mark": "\n(The line with #### is my answer, not D.)",
    "a board": f"\n{BOARD}",
    "a new thought": "\n<think>or is D better",
    "French": "\nJ'ai écarté D, c'est trop long.",
    "emoji": " \U0001f389\nD \U0001f62c",
    "an open list": "\n[D",
}
UNMARKED = (
    "A",
    "My answer: A",
    "```json\nA\n```",
    '{"answer": A}',
    "So I say **A**.",
    "\\boxed{A}",
)
UNREADABLE_AFTER = {"an open list"} | {
    name for name, text in AFTER.items() if "####" in text or "<think>" in text or "####" in text
}

MOVES = st.text("UDLR", min_size=1, max_size=6).map(lambda moves: (moves_json(moves), moves))
FILLS = st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=1, max_size=4).map(
    lambda fills: (fills_json(fills), FillAnswer(tuple(fills)))
)
PATHS = st.builds(
    HelperCall, st.sampled_from(["path", "distance"]), st.integers(0, 9), st.integers(0, 9)
).map(lambda call: (str(call), call))

GAMES = {
    "moves": (MOVES, read_moves),
    "fills": (FILLS, lambda text: read_answer(text, 4)),
    "path": (PATHS, read_call),
}
# Answers of a few words. Chatter may make them unreadable, for any words may be chatter.
NAMES = st.sampled_from("abcdef")
FLOORS = st.tuples(st.integers(0, 2), NAMES).map(lambda p: (f"{p[0]} {p[1]}", GiveFloor(*p)))
SUMS = st.integers(0, 30).map(lambda total: (f"= {total}", FinalAnswer(total)))
STATEMENTS = st.tuples(NAMES, st.integers(0, 9)).map(lambda p: (f"{p[0]} = {p[1]}", Statement(*p)))
CARDS = st.integers(0, 4).map(Play) | st.integers(0, 4).map(Discard)
HINTS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: Hint(*pair)) | st.tuples(
    st.integers(0, 4), st.integers(1, 5)
).map(lambda pair: Hint(pair[0], None, pair[1]))
RELAYED = RelayEnv()
RELAYED.reset(seed=0)
RELAYED.step("#### hello")
LETTERS = RELAYED.state().level.builder_letters
CELLS = st.tuples(*[st.sampled_from(cells) for cells in (LETTERS, "abcd", "1234")]).map(
    lambda cell: "{} {}{}".format(*cell)
)
SEARCHED = SearchEnv()
SEARCHED.reset(seed=0)
SEARCHED.step("#### town")
TITLES = [document.title for document in SEARCHED.state().task.documents]
PHRASES = {
    "choices": (
        st.sampled_from(CHOICES).map(lambda choice: (choice, Move(choice))),
        lambda text, is_marked: read_move(text),
    ),
    "cards and hints": (
        (CARDS | HINTS).map(lambda action: (action_text(action), action)),
        lambda text, is_marked: read_action(text, Rules(5, 5, 5, 4, 8, 3, 25), is_marked),
    ),
    "moderator": (FLOORS | SUMS, lambda text, is_marked: read_moderator(text, 3, is_marked)),
    "expert": (STATEMENTS, lambda text, is_marked: read_expert(text, "f", is_marked)),
    "rectangles": (
        CELLS.map(lambda cell: (cell, RELAYED.parse("builder_0", f"#### {cell}"))),
        lambda text, is_marked: RELAYED.parse("builder_0", text),
    ),
    "answers": (
        st.sampled_from(TITLES).map(lambda title: (title, title)),
        lambda text, is_marked: SEARCHED.parse("answerer_0", text),
    ),
}
WRAPPINGS = (
    "A",
    "**A**",
    "\\boxed{A}",
    "<answer>A</answer>",
    "Answer: A",
    "The answer is A",
    "A<|im_end|>",
)


@pytest.mark.parametrize("game", PHRASES)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
@settings(max_examples=10)
@given(data=st.data())
def test_phrases_are_read_whatever_wraps_them(game, wrapping, data):
    answers, read = PHRASES[game]
    answer, expected = data.draw(answers)
    assert read("#### " + filled(wrapping, answer, "", ""), True) == expected


@pytest.mark.parametrize("game", PHRASES)
@settings(max_examples=300)
@given(data=st.data())
def test_no_chatter_turns_a_phrase_into_another(game, data):
    answers, read = PHRASES[game]
    answer, expected = data.draw(answers)
    others = data.draw(answers)[0], data.draw(answers)[0]
    before, after = (
        "".join(kinds[one] for one in data.draw(st.lists(st.sampled_from(list(kinds)), max_size=3)))
        for kinds in (BEFORE, AFTER)
    )
    dress = data.draw(st.sampled_from([*DRESS.values(), *(f"#### {one}" for one in WRAPPINGS)]))
    found = read(filled(before + dress + after, answer, *others), True)
    assert isinstance(found, ParseError) or found == expected


EXAMPLES = {
    "moves": ('["U","R"]', '["L"]', '["D","D"]'),
    "fills": ("[[1,2,3],[4,1,2]]", "[[1,1,1]]", "[2,2,2]"),
    "path": ("path(1, 2)", "path(3, 3)", "distance(0, 0)"),
    "walk and push": ("walk(1, 2) push(2, 2, R, 1)", "walk(3, 3)", 'move(["U"])'),
    "check": ("candidates(1, 2) check([[1,2,3]])", "candidates(2, 2)", "check([[1,1,1]])"),
}


def filled(text, answer, *others):
    """Return a text with the answers in place of A, D and E."""
    words = {"A": answer, "D": others[0], "E": others[1]}
    pieces = re.split(r"(?<![A-Za-z])([ADE])(?![A-Za-z])", text)
    return "".join(words.get(piece, piece) for piece in pieces)


@pytest.mark.parametrize("game", GAMES)
def test_one_kind_of_chatter_hides_no_answer(game):
    read = GAMES[game][1]
    expected = read(f"#### {EXAMPLES[game][0]}")
    assert not isinstance(expected, ParseError)
    kinds = [text + "#### A" for text in BEFORE.values()] + list(DRESS.values())
    kinds += ["#### A" + text for name, text in AFTER.items() if name not in UNREADABLE_AFTER]
    if game != "moves":
        kinds = [kind for kind in kinds if not kind.endswith((" (not D)", " or D", "D is blocked"))]
    for kind in kinds:
        assert read(filled(kind, *EXAMPLES[game])) == expected, kind
    for kind in UNMARKED:
        assert read(filled(kind, *EXAMPLES[game])) == expected, kind


@pytest.mark.parametrize("game", GAMES)
@settings(max_examples=100)
@given(data=st.data())
def test_no_chatter_turns_an_answer_into_another(game, data):
    answers, read = GAMES[game]
    answer, expected = data.draw(answers)
    others = data.draw(answers)[0], data.draw(answers)[0]
    before = "".join(
        BEFORE[name] for name in data.draw(st.lists(st.sampled_from(list(BEFORE)), max_size=3))
    )
    dress = DRESS[data.draw(st.sampled_from(list(DRESS)))]
    after = "".join(
        AFTER[name] for name in data.draw(st.lists(st.sampled_from(list(AFTER)), max_size=3))
    )
    text = filled(before + dress + after, answer, *others)
    found = read(text)
    assert isinstance(found, ParseError) or found == expected


@pytest.mark.parametrize("game", GAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_without_a_mark_no_chatter_turns_an_answer_into_another(game, data):
    answers, read = GAMES[game]
    answer, expected = data.draw(answers)
    others = data.draw(answers)[0], data.draw(answers)[0]
    before = data.draw(
        st.sampled_from(
            [text for text in BEFORE.values() if "#### " not in text.split("</think>")[-1]]
        )
    )
    after = data.draw(st.sampled_from([text for text in AFTER.values() if "#### " not in text]))
    dress = data.draw(st.sampled_from(UNMARKED))
    found = read(filled(before + dress + after, answer, *others))
    assert isinstance(found, ParseError) or found == expected
