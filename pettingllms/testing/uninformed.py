"""Policies that know nothing of the game: constants, parts of prompts, edits, pay on forks.

Some look at nothing but texts: the prompt, its example, what others wrote. Some repeat, vary and
combine what the scripted policies write, try texts on forks, and keep those that pay best without
solving anything: what a learner finds if a reward pays for something else than success.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, cast

from pettingllms.edits import EDITS, Edit
from pettingllms.testing.play import Actor, AnyEnv, always, scripted_actor, steps_of
from pettingllms.testing.report import SkippedCheck

_FENCE = re.compile(r"^```(\w*)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^####[ \t]*(.+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*")

EXAMPLE, PASSED_ON = "the example", "what a team-mate wrote last"
# Lines of a prompt, and numbers and names from either end of it, that are given as answers.
NUM_LINES, NUM_PARTS = 4, 2


class Clue(NamedTuple):
    """What a policy that knows nothing of the game may look at when it is asked for an answer."""

    agent: str
    prompt: str
    """Its observation."""
    said: Mapping[str, str]
    """Agent -> its last text, in the order in which agents last wrote."""


Guess = Callable[[Clue], str]
"""A cheap policy: what it answers at a clue."""


def guesses() -> dict[str, Guess]:
    """All cheap policies that look at nothing but prompts and texts, by name."""
    found: dict[str, Guess] = {}
    for text in ("", "0", "1", "yes", "#### []", " ".join(map(str, range(100)))):
        found[f"always {text!r}" if text else "silence"] = partial(_constant, text)
    for place in range(NUM_LINES):
        found[f"line {place + 1} from the end"] = partial(_line, place, after_colon=False)
        found[f"line {place + 1} from the end, after its colon"] = partial(
            _line, place, after_colon=True
        )
    for what, pattern in (("number", _NUMBER), ("name", _NAME)):
        for place in (*range(NUM_PARTS), *range(-NUM_PARTS, 0)):
            end = f"{place + 1}" if place >= 0 else f"{-place} from the end"
            found[f"{what} {end}"] = partial(_part, pattern, place)
    found[EXAMPLE] = lambda clue: example(clue.prompt)
    for name, edit in EDITS.items():
        for which, block in (("first", 0), ("last", -1)):
            found[f"{EXAMPLE}, {name} ({which} block)"] = partial(_edited, edit, block)
    found[PASSED_ON] = _passed_on
    found["the same as before"] = lambda clue: clue.said.get(clue.agent, "")
    return found


def wrapped(prompt: str, answer: str) -> str:
    """An answer in the form that a prompt seems to ask for."""
    if "####" in prompt:
        return f"#### {answer}"
    if "\\boxed" in prompt:
        return f"\\boxed{{{answer}}}"
    if "```python" in prompt:
        return f"```python\nprint({answer!r})\n```"
    return answer


def example(prompt: str) -> str:
    """The answer that a prompt shows as an example, or an empty text.

    It is the last line with `####`; else all code blocks, a block `input` filled with the paragraph
    under the last line that ends in "input", and so on.
    """
    if marked := _MARKED.findall(prompt):
        return f"#### {marked[-1]}"
    blocks = [
        f"```{label}\n{_paragraph_under(label, prompt) or content}\n```"
        for label, content in _FENCE.findall(prompt)
    ]
    return "\n".join(blocks)


def _paragraph_under(label: str, prompt: str) -> str:
    if not label:
        return ""
    found = re.findall(rf"^.*\b{label}:?\n((?:.+\n)+)", prompt, re.MULTILINE | re.IGNORECASE)
    return found[-1].rstrip("\n") if found else ""


def _constant(text: str, clue: Clue) -> str:
    return text if text.startswith("####") or not text else wrapped(clue.prompt, text)


def _line(place: int, clue: Clue, *, after_colon: bool) -> str:
    lines = [line for line in clue.prompt.splitlines() if line.strip()]
    line = lines[-1 - place] if place < len(lines) else ""
    return wrapped(clue.prompt, line.rpartition(":")[2].strip(" .?") if after_colon else line)


def _part(pattern: re.Pattern[str], place: int, clue: Clue) -> str:
    # What comes last in a prompt is the level; the rules before it are the same in all of them.
    level = clue.prompt[-len(clue.prompt) // 3 :]
    parts = pattern.findall(level)
    fits = -len(parts) <= place < len(parts)
    return wrapped(clue.prompt, parts[place] if fits else "")


def _passed_on(clue: Clue) -> str:
    others = [text for agent, text in clue.said.items() if agent != clue.agent]
    return others[-1] if others else ""


def _edited(edit: Edit, block: int, clue: Clue) -> str:
    return edited(example(clue.prompt), edit, block)


def edited(text: str, edit: Edit, block: int) -> str:
    """An answer with one of its blocks edited; an answer after `####` is one block."""
    if text.startswith("####"):
        return "#### " + edit(text.removeprefix("####").strip())
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        return edit(text)
    start, end = blocks[block].span(2)
    return text[:start] + edit(text[start:end]) + text[end:]


_DECODER = json.JSONDecoder()
# What may be between the list and the end of a text whose answer is a list.
_TAIL = re.compile(r"[\s'\")\]}`.;]*")

# Longer texts are taken as they are.
MAX_TEXT = 4000
# Different items of lists from which shuttles are made.
MAX_ITEMS = 4
# Minimum number of items of a shuttle.
SHUTTLE_LENGTH = 8


class ListAnswer(NamedTuple):
    """A text that ends in a JSON list, such as `#### ["U","R"]` or a program that prints one."""

    before: str
    """The text up to the list's opening bracket."""
    items: tuple[Any, ...]
    """The items of the list, as JSON values; at least one."""
    after: str
    """The text after the list's closing bracket."""

    def with_items(self, items: Iterable[Any]) -> str:
        """The text with other items."""
        return self.before + json.dumps(list(items), separators=(",", ":")) + self.after


def list_answer(text: str) -> ListAnswer | None:
    """The last list of a text, if it has items and nothing but closing marks follows."""
    found, at = None, 0 if len(text) <= MAX_TEXT else -1
    while at >= 0 and (start := text.find("[", at)) >= 0:
        try:
            items, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        found = ListAnswer(text[:start], tuple(cast(list[Any], items)), text[at:])
    if found is None or not found.items or not _TAIL.fullmatch(found.after):
        return None
    return found


def shorter(text: str) -> list[str]:
    """The text without the last item of its list, if it has several: almost done."""
    answer = list_answer(text)
    return [answer.with_items(answer.items[:-1])] if answer and len(answer.items) > 1 else []


def singles(texts: Iterable[str]) -> list[str]:
    """The texts with one item each, for up to `MAX_ITEMS` different items of their lists."""
    answers = _by_item(texts)
    return [answer.with_items([item]) for item, answer in answers]


def shuttles(texts: Iterable[str]) -> list[str]:
    """Texts whose lists go there and back: two items in turn, for each pair of items."""
    answers = _by_item(texts)
    length = max([SHUTTLE_LENGTH, *(len(answer.items) for _, answer in answers)])
    return [
        answer.with_items([there, back] * (length // 2))
        for (there, answer), (back, _) in combinations(answers, 2)
    ]


def _by_item(texts: Iterable[str]) -> list[tuple[Any, ListAnswer]]:
    found: dict[str, tuple[Any, ListAnswer]] = {}
    for answer in filter(None, map(list_answer, texts)):
        for item in answer.items:
            found.setdefault(json.dumps(item), (item, answer))
    return list(found.values())[:MAX_ITEMS]


# Seeds of the levels on which degenerate policies compete with the oracle.
LEVEL_SEEDS = (0, 1, 2, 3, 4, 5)

# Those of them on which policies that search do: every candidate is a step of its own.
SEARCHED_SEEDS = LEVEL_SEEDS[:3]

EpisodeActor = Callable[[int], Actor]
"""Seed of an episode -> the actor of that episode."""


class Episode(NamedTuple):
    """A finished episode, or the rest of one that was played from some moment on."""

    returns: Mapping[str, float]
    """Agent -> sum of its rewards."""
    own: Mapping[str, float]
    """Agent -> sum of the local parts of its actions."""
    solved: bool
    """Whether the infos of the last action report success."""
    turns: int
    """Turns of the whole episode, an incomplete last one included."""
    texts: tuple[tuple[str, str], ...]
    """(agent, text) of every action."""


def episode_of(env: AnyEnv, seed: int, actor: Actor) -> Episode:
    """Play the episode of a seed to its end."""
    env.reset(seed=seed)
    return rest_of(env, actor)


def rest_of(env: AnyEnv, actor: Actor) -> Episode:
    """Play an episode from the present moment to its end.

    Raises:
        ConformanceError: It does not end within `MAX_STEPS` steps.
    """
    rewards: dict[str, list[float]] = {agent: [] for agent in env.possible_agents}
    own = dict.fromkeys(env.possible_agents, 0.0)
    texts: list[tuple[str, str]] = []
    for agent in steps_of(env):
        text = actor(env, agent)
        texts.append((agent, text))
        env.step(text)
        own[agent] += env.infos[agent]["reward_parts"]["local"]
        for other, series in rewards.items():
            series.append(env.rewards[other])
    info = env.infos[texts[-1][0]]
    returns = {agent: math.fsum(series) for agent, series in rewards.items()}
    return Episode(returns, own, bool(info["success"]), info["turn"] + 1, tuple(texts))


def oracle_episodes(env: AnyEnv, seeds: Iterable[int] = LEVEL_SEEDS) -> dict[int, Episode]:
    """Seed -> the oracle's episode.

    Raises:
        SkippedCheck: If the environment has no oracle, or pays no team reward.
    """
    if "oracle" not in env.scripted_policies:
        raise SkippedCheck("There is no scripted policy 'oracle' to compare with.")
    if not env.alpha:
        raise SkippedCheck("alpha=0 pays for no success; check the environment with alpha=1.")
    return {
        seed: episode_of(env, seed, scripted_actor("oracle", random.Random(seed))) for seed in seeds
    }


# Texts of policies that do no work.
IDLE = {
    "silence": "",
    "a constant": "0",
    "an empty list": "#### []",
    "a long text": "so " * 5000,
    "giving up": "#### I give up.",
    "passing": "pass",
    "claiming success": "#### done, \\boxed{correct}",
}


def idle_actors() -> dict[str, EpisodeActor]:
    """The policies that do no work, by name."""
    actors: dict[str, EpisodeActor] = {name: partial(always, text) for name, text in IDLE.items()}
    actors["echoing the prompt"] = lambda _seed: lambda env, agent: str(env.observe(agent))
    return actors


def answers_to_other_levels(oracle: Mapping[int, Episode]) -> EpisodeActor:
    """The policy that answers what the oracle answered to the level before."""
    seeds = list(oracle)

    def of_episode(seed: int) -> Actor:
        other = oracle[seeds[seeds.index(seed) - 1]]
        by_agent: dict[str, list[str]] = {}
        for agent, text in other.texts:
            by_agent.setdefault(agent, []).append(text)

        def actor(env: AnyEnv, agent: str) -> str:
            texts = by_agent.get(agent, [""])
            return texts[env.turn % len(texts)]

        return actor

    return of_episode


def random_actor(seed: int) -> Actor:
    """The scripted policy `"random"`, or, without one, random texts of all policies."""
    rng = random.Random(seed)

    def actor(env: AnyEnv, agent: str) -> str:
        names = [name for name in env.scripted_policies if name != "oracle"]
        if not names:
            return str(rng.randrange(100))
        name = "random" if "random" in names else rng.choice(names)
        return env.scripted_action(agent, name, rng)

    return actor


def searching_actors(env: AnyEnv) -> dict[str, EpisodeActor]:
    """The policies that look for pay on forks, by name.

    Shuttle: the best of the answers that go there and back. Greedy with retreat: the best of all
    known answers, and of the oracle's without its last item; having come near the solution it goes
    back, if that is cheaper, and comes near again.
    """
    texts = _known_texts(env)
    moves = {agent: shuttles(known) for agent, known in texts.items()}
    steps = {agent: singles(known) for agent, known in texts.items()}

    def shuttle(_env: AnyEnv, agent: str, _rng: random.Random) -> list[str]:
        return [*moves[agent], *steps[agent]]

    def greedy(env: AnyEnv, agent: str, rng: random.Random) -> list[str]:
        answers = [env.scripted_action(agent, name, rng) for name in env.scripted_policies]
        near = [text for answer in answers for text in shorter(answer)]
        return [*answers, *near, *steps[agent], *moves[agent], "", "#### []"]

    return {"shuttle": _best_of(shuttle), "greedy with retreat": _best_of(greedy)}


def _best_of(candidates: Callable[[AnyEnv, str, random.Random], list[str]]) -> EpisodeActor:
    """The policy that takes the candidate which pays its agent best and solves nothing."""

    def of_episode(seed: int) -> Actor:
        rng = random.Random(seed)

        def actor(env: AnyEnv, agent: str) -> str:
            best, most = "", -math.inf
            for text in dict.fromkeys(candidates(env, agent, rng)):
                fork = env.fork()
                fork.step(text)
                if fork.rewards[agent] > most and not fork.infos[agent]["success"]:
                    best, most = text, fork.rewards[agent]
            return best

        return actor

    return of_episode


def _known_texts(env: AnyEnv) -> dict[str, list[str]]:
    """Agent -> what the scripted policies write in a few episodes."""
    texts: dict[str, list[str]] = {agent: [] for agent in env.possible_agents}
    for seed in LEVEL_SEEDS[:2]:
        for name in reversed(env.scripted_policies):
            actor = scripted_actor(name, random.Random(seed))
            for agent, text in episode_of(env, seed, actor).texts:
                texts[agent].append(text)
    return texts
