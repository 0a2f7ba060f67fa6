"""`MathEnv`: a reasoner and a tool user answer one question in two ways."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_choice
from pettingllms.pages import page
from pettingllms.prompts import PromptTemplate
from pettingllms.types import role_of
from pettingllms_envs.math.base import AnswerArguments, AnswerEnv
from pettingllms_envs.math.rules import MathState, all_agree, standing_of
from pettingllms_envs.math.text import (
    by_chance,
    formula_of,
    numbers_of,
    team_prompts,
    write_answer,
    write_program,
)

TEAMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "reasoner-tool": (("tool_0", "reasoner_0"),),
    "tool-reasoner": (("tool_0",), ("reasoner_0",)),
    "single": (("reasoner_0",),),
    "single-tool": (("tool_0",),),
}


@page(split="test", difficulty_range=(1, 2))
class MathEnv(AnswerEnv):
    r"""Answer a mathematical question by reasoning and by a program, until both agree.

    ## Task

    A question with one right answer: a number, an expression, a tuple, an interval, or several of
    these. Built-in questions are generated from families with exact answers; data sets are loaded.

    ## Agents and roles

    `team="reasoner-tool"`: `tool_0` writes a program that prints the answer, `reasoner_0` reasons
    and boxes the answer. Both act on what was known at the start of the turn.
    `team="tool-reasoner"`: the tool user acts first, and the reasoner sees what its program
    printed. `team="single"`: `reasoner_0` alone; `team="single-tool"`: `tool_0` alone;
    with the same turns, rewards and history.

    ## Observation

    The question, the turn, and from the second turn on what every agent did before: answer,
    report of the run, and the end of the work. The reference answer is never shown.
    `prompt_fields` lists the placeholders of prompts.

    ## Action

    Tool: the last ```python block is run in the sandbox without input; the last line that it
    prints is the answer. Reasoner: the last `\boxed{...}` is the answer, or the list of several
    with only commas, `and` or names between. An open interval is not a closed one, 3 m are not
    3 cm, `123_5` is not `123_6`, and answers that are asked for twice count twice. Decimals are
    right to a millionth, absolutely and relatively.

    What one action can cost: a program runs once (8 s of processor time, 10 s on the clock, 64 KiB
    of output). An answer of more than 1000 characters is not read. It is compared with the
    reference once and with the other answer of the turn twice; a comparison takes at most 2 s of
    processor time (the default of `Verifier`). Numbers, other units, and answers that are
    not written out are judged without it. Verdicts are remembered, failures too.

    ## Reward

    An agent's standing answer is its latest readable one. The answer that counts is the
    reasoner's; the tool's in `team="single-tool"`. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | the agent whose answer counts acts | change of [its standing answer is right] |
    | local | an agent acts | change of [its standing answer is right] |
    | local | no readable answer, or a program that fails or prints nothing | -0.25 / T |

    Summed over an episode the team part is 1 if the answer handed in is right, else 0, whatever
    the number of turns, and an agent's local parts lie in [-0.25, 1]. Staying, oscillating and
    drawing out an episode pay nothing. Of a single action, a team part lies in [-1, 1], a local
    part in [-1, 1]. A verdict that the verifier could not reach counts as not right and is reported
    in `verdict`.

    ## Termination

    Terminated when both answers of a turn mean the same (alone: when an answer repeats the
    last readable one), or after `max_turns` turns; the answer that counts is then handed in.
    `success`: it equals the reference. There is no truncation: the last answer is always judged.

    ## Info keys

    - `problem`: id of the problem.
    - `answer`: the answer that was read; None if there was none.
    - `verdict`: `correct`, `wrong`, `unparsable`, `verifier_failed`, or empty without an answer.
    - `execution`: (tool) `ok`, or why the program gave no answer.
    - `agreed`: (last agent of a turn) whether the answers agreed.
    - `final_answer`: (last agent of a turn) the answer that was handed in, if any.

    ## Arguments

    - `team`: `"reasoner-tool"`, `"tool-reasoner"`, `"single"` or `"single-tool"`.
    - `source`: `"builtin"`, a file, a hub data set, a sequence of `MathProblem`, or
      `"reasoning_gym:NAME"`: a task of reasoning-gym, judged by its own scorer. Also
      `make("reasoning_gym:NAME")`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all). Built-in questions and tasks: by
      content; files: a share of the problems by id; hub data sets: their own splits.
    - `difficulty_range`: minimum and maximum difficulty of built-in questions, 1 to 5; of a task,
      the place in its curriculum, from the first to the last level of every attribute.
    - `history`: number of past turns that prompts show, at least 1.
    - `prompts`: role -> replacement of its prompt; where it names neither `python` nor `\boxed`,
      the scripted policies write nothing around their answers, which is all that a tiny model
      needs to write.
    - `render_mode`: `"ansi"` or `"human"`; shows the reference answer.

    `reset(options={"problem": id})` chooses a problem of a data set, `{"family": name}` a family.

    ## Source

    The mathematics workflow of Stronger-MAS (arXiv 2510.11062). Changed: answers are compared by
    equivalence in killable processes, rewards are differences, so that time does not pay.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "math_v0",
        "render_modes": ["ansi", "human"],
        "second_values": {"difficulty_range": (3, 4), "families": ("gcd",)},
        "unseen_arguments": ("schema", "history"),
    }
    fetched_arguments: ClassVar[tuple[str, ...]] = ("source",)
    scripted_policies: ClassVar[tuple[str, ...]] = (
        "oracle",
        "constant",
        "disagreeing",
        "random",
        "formula",
        "numbers",
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = team_prompts(
        is_alone=False, sees_tool=False
    )

    def __init__(
        self, *, team: str = "reasoner-tool", max_turns: int = 4, **answers: Unpack[AnswerArguments]
    ) -> None:
        check_choice("team", team, TEAMS)
        stages = TEAMS[team]
        agents = tuple(agent for stage in stages for agent in stage)
        self._is_alone = len(agents) == 1
        roles = map(role_of, agents)
        templates = team_prompts(self._is_alone, sees_tool=len(stages) > 1)
        super().__init__(
            stages=stages,
            max_turns=max_turns,
            is_paid_twice=True,
            templates={role: templates[role] for role in roles},
            **answers,
        )

    def _closing(self, before: MathState, after: MathState) -> tuple[bool, dict[str, Any]]:
        attempts = after.current
        earlier = standing_of(before, self._counting_agent) if self._is_alone else None
        if earlier is not None:
            attempts = (earlier, *attempts)
        agreed = len(attempts) > 1 and all_agree(attempts, self._equivalent(after))
        return agreed, {"agreed": agreed}

    def _scripted(self, state: MathState, agent: str, policy: str, rng: random.Random) -> str:
        answer = state.problem.answer
        if policy == "constant" or (policy == "disagreeing" and agent == "tool_0"):
            answer = "0"
        elif policy == "random":
            answer = self._guess(state, rng)
        elif policy == "numbers":
            numbers = numbers_of(state.problem.question)
            if agent == "tool_0":
                return write_program(by_chance(numbers, rng), self._is_terse(agent))
            answer = rng.choice([*numbers, *(a.answer for a in state.standing if a.answer)])
        elif policy == "formula":
            tried = standing_of(state, "tool_0")
            answer = tried.answer if tried is not None and tried.answer is not None else "0"
            formula = formula_of(state.problem)
            if agent == "tool_0" and formula is not None:
                return write_program(formula, self._is_terse(agent))
        return write_answer(agent, answer, self._is_terse(agent))
