"""What the agents read: the words of the prompts, and placeholders of the game."""

from __future__ import annotations

from pettingllms.prompts import PromptField
from pettingllms_envs.planning.game import PlanningState
from pettingllms_envs.planning.prompts import DUTIES_APART, LIMITS, Words
from pettingllms_envs.queens import rules, text

WORDS = Words(
    goal="Move queens until no two of them attack each other: no two in one column or diagonal",
    rules=f"""\
Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left. Q is a queen, F a \
queen that is fixed, . an empty cell. There is one queen in each row. A move [row, column] puts \
the queen of a row into another column; other queens are not in its way. Fixed queens stay.
{LIMITS}""",
    user="Turn {turn} of {max_turns}.{history}\n{scene}",
    example="[[0,3],[2,1]]",
    program="""\
The program reads the board from stdin, one line per row, without spaces and without numbers. It \
prints a JSON list of moves. Its answer is the last list that it prints, such as [[0,3],[2,1]].""",
    duties=DUTIES_APART,
)
DRAWN = WORDS._replace(
    goal="Move pieces until none of them attacks another",
    rules=f"""\
Rows and columns are numbered from 0; row 0 is at the top, column 0 at the left. Q is a queen, F a \
queen that is fixed, A to E other pieces, a to e the same fixed, . an empty cell. There is one \
piece in each row. A move [row, column] puts the piece of a row into another column; other pieces \
are not in its way. Fixed pieces stay.
How a kind attacks: 1,2 is one step of 1 row and 2 columns, or of 2 rows and 1 column, in any \
direction; 1,2*3 is up to 3 such steps in the same direction, 1,2* any number of them. No piece is \
in the way of an attack.
{LIMITS}""",
    program="""\
The program reads from stdin a line for each kind of piece but queens, such as A 0,1*3 1,2, then \
the board, one line per row, without spaces and without numbers. It prints a JSON list of moves. \
Its answer is the last list that it prints, such as [[0,3],[2,1]].""",
)
"""The words where other pieces stand among the queens."""
FIELDS: dict[str, PromptField[PlanningState]] = {
    "scene": PromptField(
        "`board`, `columns` and `attacks`, as the default prompts show them",
        lambda state, agent, turn: text.scene_text(state.level, state.position),
    ),
    "board": PromptField(
        "the board with row and column numbers",
        lambda state, agent, turn: text.labelled_board(state.level, state.position),
    ),
    "columns": PromptField(
        "the column of the queen of each row, as a JSON list",
        lambda state, agent, turn: str(list(state.position)),
    ),
    "attacks": PromptField(
        "number of pairs of queens that attack each other",
        lambda state, agent, turn: rules.attacks(state.level, state.position),
    ),
    "columns_compact": PromptField(
        "the columns as hexadecimal digits", lambda state, agent, turn: text.digits(state.position)
    ),
    "fixed_compact": PromptField(
        "a digit for each row: 1 if its queen is fixed, else 0",
        lambda state, agent, turn: text.digits(state.level.fixed),
    ),
}
