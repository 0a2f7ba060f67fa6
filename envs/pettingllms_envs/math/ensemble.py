"""`MathEnsembleEnv`: several reasoners and tool users, and a judge who decides."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_whole
from pettingllms.errors import InvalidArgument
from pettingllms.pages import page
from pettingllms.prompts import PromptTemplate
from pettingllms.types import role_of
from pettingllms_envs.math.base import AnswerArguments, AnswerEnv
from pettingllms_envs.math.rules import MathState, all_agree, majority, standing_of
from pettingllms_envs.math.text import ensemble_prompts, formula_of, write_answer, write_program

JUDGE = "judge_0"
MAX_CANDIDATES = 64


@page(policy="majority", reasoners=3, tools=2)
class MathEnsembleEnv(AnswerEnv):
    r"""Answer a mathematical question many times, then judge the answers.

    ## Task

    A question with one right answer, as in `math_v0`. Several agents answer it independently; a
    judge reads all of it and gives the answer that is handed in.

    ## Agents and roles

    `reasoner_0`, `reasoner_1`, ...: reason and box an answer. `tool_0`, `tool_1`, ...: write a
    program that prints the answer. They act simultaneously. Then `judge_0` acts, who sees all of
    their attempts of the turn.

    ## Observation

    Reasoners and tools: the question, the turn, and what happened in earlier turns. Judge: the
    question and every attempt of this turn: answer, report of the run, end of the work. The
    reference answer is never shown. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Tool: the last ```python block is run in the sandbox without input; the last line that it
    prints is the answer. Reasoner and judge: the last `\boxed{...}` is the answer.

    What one action can cost: as in `math_v0`. When the judge acts, each answer of the turn is also
    compared with at most 8 others; after 2 comparisons that exceed the limit, as text only.

    ## Reward

    An agent's standing answer is its latest readable one. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | judge | change of [its standing answer is right] |
    | local | reasoner, tool | change of [its standing answer is right] |
    | local | no readable answer, or a program that fails or prints nothing | -0.25 / T |

    Summed over an episode the team part is 1 if the answer handed in is right, else 0; an agent's
    local parts lie in [-0.25, 1], the judge's in [-0.25, 0]. Of a single action, a team part lies
    in [-1, 1], a local part in [-1, 1].

    ## Termination

    Terminated after `max_turns` turns (one by default), or earlier when the judge repeats its
    last readable answer; the judge's standing answer is then handed in. `success`: it equals the
    reference. There is no truncation.

    ## Info keys

    - `problem`: id of the problem.
    - `answer`: the answer that was read; None if there was none.
    - `verdict`: `correct`, `wrong`, `unparsable`, `verifier_failed`, or empty without an answer.
    - `execution`: (tool) `ok`, or why the program gave no answer.
    - `final_answer`: (judge) the answer that was handed in, if any.
    - `num_answers`: (judge) number of readable answers of this turn.
    - `majority_answer`: (judge) the most frequent answer of this turn by equivalence, the earliest
      of several; None if there is none.
    - `majority_correct`: (judge) baseline: whether that answer is right.
    - `any_correct`: (judge) baseline: whether any answer of this turn is right.

    ## Arguments

    - `reasoners`: number of reasoners, at least 0.
    - `tools`: number of tool users, at least 0; reasoners and tools together 1 to 64.
    - `source`: `"builtin"`, a file, a hub data set, `"reasoning_gym:NAME"`, or a sequence of
      `MathProblem`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); as in `math_v0`.
    - `difficulty_range`: minimum and maximum difficulty of built-in questions and tasks, 1 to 5.
    - `history`: number of past turns that prompts show, at least 1.
    - `prompts`: role -> replacement of its prompt; where it names neither `python` nor `\boxed`,
      the scripted policies write nothing around their answers.
    - `render_mode`: `"ansi"` or `"human"`; shows the reference answer.

    `reset(options={"problem": id})` chooses a problem of a data set, `{"family": name}` a family.

    ## Source

    The mathematics ensemble of Stronger-MAS (arXiv 2510.11062). Changed: success is set by the
    judge's answer, and majority vote and any-correct are reported as baselines.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "math_ensemble_v0",
        "render_modes": ["ansi", "human"],
        "second_values": {"difficulty_range": (3, 4), "families": ("gcd",)},
        "unseen_arguments": ("schema", "history"),
    }
    fetched_arguments: ClassVar[tuple[str, ...]] = ("source",)
    scripted_policies: ClassVar[tuple[str, ...]] = (
        "oracle",
        "constant",
        "majority",
        "random",
        "formula",
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = ensemble_prompts()

    def __init__(
        self,
        *,
        reasoners: int = 3,
        tools: int = 2,
        max_turns: int = 1,
        **answers: Unpack[AnswerArguments],
    ) -> None:
        check_whole("reasoners", reasoners, 0, MAX_CANDIDATES)
        check_whole("tools", tools, 0, MAX_CANDIDATES)
        if not 1 <= reasoners + tools <= MAX_CANDIDATES:
            allowed = f"1 to {MAX_CANDIDATES} together"
            raise InvalidArgument("reasoners and tools", (reasoners, tools), allowed)
        candidates = [f"reasoner_{i}" for i in range(reasoners)]
        candidates += [f"tool_{i}" for i in range(tools)]
        roles = dict.fromkeys(map(role_of, (*candidates, JUDGE)))
        templates = {role: self.default_prompts[role] for role in roles}
        super().__init__(
            stages=(tuple(candidates), (JUDGE,)),
            max_turns=max_turns,
            # Candidates are paid for their own answers; what a judge makes of them is its merit.
            is_paid_twice=False,
            templates=templates,
            **answers,
        )

    def _closing(self, before: MathState, after: MathState) -> tuple[bool, dict[str, Any]]:
        earlier = standing_of(before, JUDGE)
        # A judge without a readable answer has settled nothing, and is asked again.
        attempts = () if earlier is None else (earlier, after.current[-1])
        is_last = before.turn + 1 == self.max_turns  # and no comparison is needed
        repeats = not is_last and attempts and all_agree(attempts, self._equivalent(after))
        return bool(repeats), self._baselines(before)

    def _baselines(self, state: MathState) -> dict[str, Any]:
        right = {a.answer: a.is_correct for a in state.current if a.answer is not None}
        answers = [a.answer for a in state.current if a.answer is not None]
        chosen = majority(answers, self._equivalent(state))
        return {
            "num_answers": len(answers),
            "majority_answer": chosen,
            "majority_correct": chosen is not None and right[chosen],
            "any_correct": any(right.values()),
        }

    def _scripted(self, state: MathState, agent: str, policy: str, rng: random.Random) -> str:
        is_terse, formula = self._is_terse(agent), formula_of(state.problem)
        answer = state.problem.answer
        if policy == "constant":
            answer = "0"
        elif agent == JUDGE and policy in ("majority", "formula"):
            answer = self._baselines(state)["majority_answer"] or "0"
        # Candidates that err in two of five cases leave a vote something to do.
        elif policy == "majority" and rng.random() < 0.4:
            answer = str(rng.randint(0, 9))
        elif policy == "formula" and role_of(agent) == "tool" and formula is not None:
            return write_program(formula, is_terse)
        elif policy in ("random", "formula"):
            answer = self._guess(state, rng)
        return write_answer(agent, answer, is_terse)
