"""Checks of observations: no side effects, the present state, and nothing that is private."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pettingllms.errors import ConformanceError
from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    always,
    episode,
    has_ended,
    mixed_actor,
    moments,
    require,
    scripted_actor,
    steps_of,
)
from pettingllms.testing.readers import framed
from pettingllms.testing.report import Figures, NotPromised, SkippedCheck, Subject
from pettingllms.testing.uninformed import (
    EpisodeActor,
    answers_to_other_levels,
    list_answer,
    oracle_episodes,
    random_actor,
)


def check_observe(subject: Subject) -> None:
    """`observe` and `messages` change nothing, agree, and work at any time."""
    env = subject()
    env.reset(seed=2)
    actor = mixed_actor(random.Random(2))
    for _ in range(6 * len(env.possible_agents)):
        before, rewards = env.state_hash(), dict(env.rewards)
        for agent in env.possible_agents:
            observation = env.observe(agent)
            joined = "\n\n".join(m["content"] for m in env.messages(agent))
            require(observation == env.observe(agent), "observe twice gave two observations.")
            require(observation == joined, "messages and observation differ.")
            inside = env.observation_space(agent).contains(observation)
            require(inside, "An observation is outside of the observation space.")
        require(before == env.state_hash(), "observe changed the state.")
        require(rewards == env.rewards, "observe changed the rewards.")
        if has_ended(env):
            return
        env.step(actor(env, env.agent_selection))


def check_watching(subject: Subject) -> None:
    """An episode is the same whether or not it is watched: looking has no side effects."""
    env = subject()
    for seed in SEEDS:
        unwatched = _outcomes(env, seed, mixed_actor(random.Random(seed)))
        actor = mixed_actor(random.Random(seed))
        watched = _outcomes(env, seed, lambda env, agent, actor=actor: _look(env, agent, actor))
        require(
            unwatched == watched,
            f"Seed {seed}: the same actions had other results after observe, messages, last, "
            "state_hash, ansi rendering and scripted_action were called.",
        )


def check_reading(subject: Subject) -> None:
    """What every agent reads depends on the level and on what was done before."""
    env = subject()
    shows_seed = env.metadata.get("seed_shows", True)
    by_moment: dict[tuple[str, int], list[str]] = {}
    for seed in range(20, 32):
        for step in episode(env, seed):
            moment = (step["agent"], step["info"]["turn"])
            by_moment.setdefault(moment, []).append(step["observation"])
    for agent in env.possible_agents:
        # Who seldom has the floor may be seen but once at every moment.
        readings = [s for (reader, _), s in by_moment.items() if reader == agent and len(s) > 1]
        require(
            not readings or not shows_seed or max(len(set(seen)) for seen in readings) > 1,
            f"{agent} reads the same in every episode: its prompt does not depend on the state.",
        )
    num_pairs, num_different = _compare_branches(subject)
    if not num_pairs:
        raise NotPromised("No agent reads anything after an action has changed the state.")
    require(
        num_different > 0,
        f"In {num_pairs} pairs of branches with different states, every agent reads the same in "
        "both: prompts do not depend on the state.",
    )


def _compare_branches(subject: Subject) -> tuple[int, int]:
    """The pairs of branches with different states, and those that agents can distinguish."""
    num_pairs = num_different = 0
    for seed in SEEDS:
        env = subject()
        env.reset(seed=seed)
        actor = mixed_actor(random.Random(seed))
        for agent in steps_of(env):
            one, other = env.fork(), env.fork()
            _pass_stage(one, mixed_actor(random.Random(seed)))
            _pass_stage(other, always(""))
            readers = one.acting()
            if readers and readers == other.acting() and one.state_hash() != other.state_hash():
                num_pairs += 1
                num_different += any(one.observe(a) != other.observe(a) for a in readers)
            env.step(actor(env, agent))
    return num_pairs, num_different


def _pass_stage(env: AnyEnv, actor: Actor) -> None:
    for agent in moments(env, len(env.acting())):
        env.step(actor(env, agent))


def _look(env: AnyEnv, agent: str, actor: Actor) -> str:
    """Call everything that must change nothing, then answer."""
    for other in env.possible_agents:
        env.observe(other)
        env.messages(other)
        for policy in env.scripted_policies:
            env.scripted_action(other, policy, random.Random(0))
    env.last()
    env.acting()
    env.state_hash()
    env.render_mode = "ansi"
    env.render()
    return actor(env, agent)


def _outcomes(env: AnyEnv, seed: int, actor: Actor) -> list[dict[str, Any]]:
    """What the actions of an episode did, without a look at observations or hashes."""
    env.reset(seed=seed)
    outcomes: list[dict[str, Any]] = []
    for agent in steps_of(env):
        env.step(actor(env, agent))
        outcomes.append({"agent": agent, "rewards": dict(env.rewards), "info": env.infos[agent]})
    return [*outcomes, {"final": env.state_hash()}]


# Seeds of the levels on which private texts are followed.
PRIVATE_SEEDS = range(12)
# Moments of each level.
FOLLOWED = 40
# Shorter texts stand in every prompt by chance.
MIN_PRIVATE_CHARS = 3
# Different texts that must have been seen elsewhere: one alone may be an example of the prompt.
MIN_LEAKS = 3
_BETWEEN_ITEMS = re.compile(r"\s*[,;\n]\s*")


def check_same_moment(subject: Subject) -> None:
    """Agents that act at the same moment neither read nor pay for each other's choices of it.

    What an earlier one chooses changes neither what a later one reads, nor how its text is read,
    nor its local part.
    """
    env = subject()
    if all(len(stage) == 1 for stage in env.stages):
        raise NotPromised("No two agents act at the same moment.")
    for seed in SEEDS:
        env.reset(seed=seed)
        rng = random.Random(seed)
        actor = mixed_actor(rng)
        for agent in moments(env):
            others = env.acting()[1:]
            seen = {other: env.observe(other) for other in others}
            scripted = [env.scripted_action(agent, name, rng) for name in env.scripted_policies]
            alone: dict[str, tuple[Any, ...]] = {}
            for text in dict.fromkeys(["", *scripted]) if others else ():
                fork = env.fork()
                fork.step(text)
                changed = [o for o in others if not has_ended(fork) and fork.observe(o) != seen[o]]
                require(
                    not changed,
                    f"Seed {seed}, turn {env.turn}: {', '.join(changed)} reads what {agent} has "
                    "just chosen, and they choose at the same time.",
                )
                for other, found in _own_outcomes(fork, others):
                    require(
                        found == alone.setdefault(other, found),
                        f"Seed {seed}, turn {env.turn}: what {other} does is refused or paid for "
                        f"by what {agent} has just chosen, and they choose at the same time.",
                    )
            env.step(actor(env, agent))


def _own_outcomes(env: AnyEnv, others: Sequence[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield what becomes of the same texts of agents that act after another one."""
    for number, other in enumerate(others):
        for policy in env.scripted_policies[:2]:
            branch = env.fork()
            for mate in others[:number]:
                if not has_ended(branch) and branch.agent_selection == mate:
                    branch.step("")
            if has_ended(branch) or branch.agent_selection != other:
                return
            branch.step(branch.scripted_action(other, policy, random.Random(0)))
            info = branch.infos[other]
            outcome = info["parse_error"] is None, round(info["reward_parts"]["local"], 9)
            yield f"{other} ({policy})", outcome


class _Item(NamedTuple):
    """Identifies a text of a private field."""

    owner: str
    """The agent whose prompts may show it."""
    field: str
    place: int
    """Index of the text among all texts of the field, from 0."""


def check_private(subject: Subject) -> Figures | None:
    """What a private field shows its reader, no one else reads before the reader has written it.

    `private_fields` of the environment names the fields. Their values, cut at commas, semicolons
    and ends of lines, are looked for in the prompts of all others, in any usual spelling, at every
    moment of episodes in which their reader has not yet written them. One that a prompt shows in
    most episodes leaks, unless it shows those of another level as often: a few are there by chance.
    """
    env = subject()
    if not env.private_fields:
        raise NotPromised("The environment declares no private_fields.")
    hits: dict[tuple[_Item, str], _Hits] = defaultdict(lambda: _Hits([], [], []))
    before: dict[_Item, str] = {}
    for seed in PRIVATE_SEEDS:
        known: dict[_Item, str] = {}
        for item, reader, text, prompt in _followed(env, seed):
            known[item] = text
            hits[item, reader].note(prompt, text, before.get(item, ""))
        before = known
    for (item, reader), found in hits.items():
        if found.is_leak():
            raise ConformanceError(
                f"{reader} reads {found.texts[0]!r} of the field {item.field!r}, which "
                f"{item.owner} alone knows and has not written, and the like at "
                f"{len(found.texts)} of {len(found.looked)} moments."
            )
    searched = {item.field for (item, _), found in hits.items() if found.is_enough()}
    missed = [field for field in env.private_fields if field not in searched]
    said = (
        f"Nothing of {', '.join(missed)} was looked for: it needs {MIN_LEAKS} different texts of "
        f"at least {MIN_PRIVATE_CHARS} characters, and prompts of others before these are written."
    )
    if not searched:
        raise SkippedCheck(said)
    return Figures({}, said) if missed else None


class _Hits(NamedTuple):
    """How often prompts name a text, and how often the text in its place in another level."""

    looked: list[str]
    """The text, once for each prompt that was searched."""
    texts: list[str]
    """The text, once for each prompt that named it."""
    by_chance: list[str]
    """The other level's text, once for each prompt that named it."""

    def note(self, prompt: str, text: str, other: str) -> None:
        self.looked.append(text)
        self.texts.extend([text] * names(prompt, text))
        self.by_chance.extend([other] * (other != text and names(prompt, other)))

    def is_enough(self) -> bool:
        """Whether texts were looked for, and so many that a leak would have been found."""
        return len({*self.looked}) >= MIN_LEAKS

    def is_leak(self) -> bool:
        # A word may stand in a prompt by chance; most moments and several words are no chance.
        is_often = 2 * len(self.texts) > len(self.looked) > 2 * len(self.by_chance)
        return is_often and len({*self.texts}) >= MIN_LEAKS


def _followed(env: AnyEnv, seed: int) -> Iterator[tuple[_Item, str, str, str]]:
    """Yield (private text, another reader, its words, what that reads) of one episode."""
    env.reset(seed=seed)
    rng = random.Random(seed)
    actor = scripted_actor("oracle", rng) if seed % 2 else mixed_actor(rng)
    written: dict[str, str] = defaultdict(str)
    for agent in moments(env, FOLLOWED):
        prompts = {other: str(env.observe(other)) for other in env.possible_agents}
        for item, text in _private(env):
            if names(written[item.owner], text):
                continue
            for reader, prompt in prompts.items():
                if reader != item.owner:
                    yield item, reader, text, prompt
        said = actor(env, agent)
        written[agent] += said + "\n"
        env.step(said)


def _private(env: AnyEnv) -> Iterator[tuple[_Item, str]]:
    for owner in env.possible_agents:
        fields = env.fields(owner)
        for field in env.private_fields:
            for index, text in enumerate(_BETWEEN_ITEMS.split(str(fields[field]))):
                if len(text) >= MIN_PRIVATE_CHARS:
                    yield _Item(owner, field, index), text


_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
# Shorter texts stand in longer words by chance.
MIN_SQUEEZED = 5


class _Words(NamedTuple):
    """The words and numbers of a text, in lower case; number words become digits."""

    tokens: tuple[str, ...]
    """All of them, in order."""
    known: frozenset[str]
    squeezed: str
    """All of them, joined without spaces."""


@lru_cache(maxsize=4096)
def _words(text: str) -> _Words:
    found = _TOKEN.findall(text.casefold())
    tokens = tuple(str(_NUMBERS.index(one)) if one in _NUMBERS else one for one in found)
    return _Words(tokens, frozenset(tokens), "".join(tokens))


@lru_cache(maxsize=4096)
def _near(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """The tokens in their order, with at most one other between two of them."""
    return re.compile(rf"(?<!\w){r'(?: [^ ]+)? '.join(map(re.escape, tokens))}(?!\w)")


def names(text: str, part: str) -> bool:
    """Whether a text names another one, whatever the case, the punctuation and the order.

    One word may stand between two of its words, numbers may be words, and all may be spelled
    backwards or with something between the letters.
    """
    words, wanted = _words(text), _words(part)
    if not wanted.tokens:
        return False
    if wanted.known <= words.known:
        line = " ".join(words.tokens)
        if any(_near(one).search(line) for one in (wanted.tokens, wanted.tokens[::-1])):
            return True
    sought = wanted.squeezed
    is_long = len(sought) >= MIN_SQUEEZED
    return is_long and (sought in words.squeezed or sought[::-1] in words.squeezed)


# Seeds that no level names by chance.
NAMED_SEEDS = (48151623, 86753091)
# Texts that cannot be encoded, as a server may send them.
_SURROGATES = ("\ud800", "#### \ud800", "{}\udfff", "\udfff {}")
_TURN = re.compile(r"\b[Tt]urn (\d+) ?(?:of|/) ?(\d+)")


def check_prompts(subject: Subject) -> None:
    """Prompts can be encoded, have no open placeholders, say the right turn, and name no seed."""
    env = subject()
    holes = [f"{{{name}}}" for name in env.prompt_fields]
    for seed in NAMED_SEEDS:
        rng = random.Random(seed)
        for policy in env.scripted_policies:
            env.reset(seed=seed)
            for agent in moments(env):
                prompt = str(env.observe(agent))
                left = [hole for hole in holes if hole in prompt]
                require(not left, f"{agent} reads {', '.join(left)}: a placeholder is not filled.")
                is_named = any(text in _words(prompt).squeezed for text in (str(seed), f"{seed:x}"))
                require(not is_named, f"{agent} reads the seed {seed}.")
                for now, most in _TURN.findall(prompt):
                    require(
                        int(most) == env.max_turns and int(now) - env.turn in (0, 1),
                        f"{agent} reads turn {now} of {most}; it is {env.turn + 1} of "
                        f"{env.max_turns}.",
                    )
                env.step(env.scripted_action(agent, policy, rng))
    _require_encodable(env)


def _require_encodable(env: AnyEnv) -> None:
    """Prove that what a server sends broken is repaired before others read it."""
    for text in _SURROGATES:
        env.reset(seed=NAMED_SEEDS[0])
        rng = random.Random(0)
        for agent in moments(env):
            says = env.scripted_policies[:1] if "{}" in text else ()
            said = "".join(env.scripted_action(agent, policy, rng) for policy in says)
            env.step(text.replace("{}", said))
            seen = [
                *map(str, map(env.observe, env.possible_agents)),
                json.dumps(env.infos, ensure_ascii=False, default=str),
            ]
            for shown in seen:
                try:
                    shown.encode()
                except UnicodeEncodeError as error:
                    raise ConformanceError(
                        f"After the text {text!r} of {agent} an observation or info cannot be "
                        f"encoded: {error}"
                    ) from error


# Levels on which prompts are searched for answers.
ANSWER_SEEDS = range(8)
# Shorter lists stand in prompts by chance.
MIN_LIST_CHARS = 12


def check_answers_hidden(subject: Subject) -> None:
    """No prompt names the answer that was asked for and not given.

    Teams that are silent, answer for other levels, or answer at random play on; what the oracle
    answers at first must not stand in a later prompt more often than what it answers to another
    level. A list must not stand in the first prompt either.
    """
    env = subject()
    oracle, is_searched = oracle_episodes(env, ANSWER_SEEDS), False
    teams: dict[str, EpisodeActor] = {
        "silence": lambda seed: always(""),
        "answers to other levels": answers_to_other_levels(oracle),
        "random answers": random_actor,
    }
    for name, of_episode in teams.items():
        hits: dict[tuple[str, str], _Hits] = defaultdict(lambda: _Hits([], [], []))
        before: dict[str, str] = {}
        for seed in oracle:
            asked = dict[str, str]()
            for agent, prompt, answer, is_later in _asked(env, seed, of_episode(seed)):
                asked[agent] = answer
                when = f"a later prompt, after {name}" if is_later else "its first prompt"
                hits[agent, when].note(prompt, answer, before.get(agent, ""))
            before = asked
        for (agent, when), found in hits.items():
            require(not found.is_leak(), f"{agent} reads the answer {found.texts[:1]} in {when}.")
            is_searched = is_searched or found.is_enough()
    if not is_searched:
        raise NotPromised(
            f"Nothing was looked for: it needs {MIN_LEAKS} different answers of an agent that "
            "reads on, none of them named in its first prompt, or lists for its first prompt."
        )


def _asked(env: AnyEnv, seed: int, actor: Actor) -> Iterator[tuple[str, str, str, bool]]:
    """Yield (agent, prompt, the answer asked for, whether it is a later prompt) of an episode."""
    env.reset(seed=seed)
    asked: dict[str, str] = {}
    shown: set[str] = set()
    for agent in moments(env):
        prompt = str(env.observe(agent))
        if agent in asked:
            if agent not in shown:  # what was to be read at first is for the agent to find
                yield agent, prompt, asked[agent], True
        else:
            text = env.scripted_action(agent, "oracle", random.Random(seed))
            asked[agent] = framed(text).answer
            if names(prompt, asked[agent]):
                shown.add(agent)
            is_list = list_answer(text) is not None and len(asked[agent]) >= MIN_LIST_CHARS
            if is_list and agent == env.possible_agents[0]:
                yield agent, prompt, asked[agent], False
        env.step(actor(env, agent))
