"""A small environment on which the contract is tested, and scripted policies."""

import asyncio
import signal
from typing import NamedTuple

import pytest

import pettingllms
from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms.policies import Answer, Completion, Usage


class Numbers(NamedTuple):
    secret: int
    hint: str = ""
    answer: str = ""
    is_paid: bool = False


class GuessEnv(TextEnv):
    """The teller may hint at a number that the guesser must say."""

    metadata = {"name": "guess_v0", "render_modes": ["ansi", "human"]}
    scripted_policies = ("oracle", "random")
    prompt_fields = {"secret": "the number", "hint": "this turn's hint", "answer": "last answer"}
    default_prompts = {
        "teller": PromptTemplate(
            "Hint at {secret}. A brace: {{}}.", "You said {hint!r}.", "Now {hint!r}."
        ),
        "guesser": PromptTemplate("Say the number.", "Hint: {hint}. Last answer: {answer}."),
    }

    def __init__(
        self,
        *,
        simultaneous=False,
        max_turns=3,
        alpha=1.0,
        reward="shaped",
        observation_mode="full",
        prompts=None,
        render_mode=None,
    ):
        pair = ("teller_0", "guesser_0")
        super().__init__(
            stages=(pair,) if simultaneous else tuple((agent,) for agent in pair),
            max_turns=max_turns,
            alpha=alpha,
            reward=reward,
            observation_mode=observation_mode,
            prompts=prompts,
            render_mode=render_mode,
        )

    def _generate(self, rng, options):
        return Numbers(options.get("secret", rng.randrange(1, 100)))

    def _fields(self, state, agent, turn):
        return state._asdict()

    def _parse(self, state, agent, text):
        short = text.isascii() and text.isdecimal() and len(text) < 5
        return text if short else ParseError("not a short number")

    def _act(self, state, agent, action):
        key = "hint" if agent == "teller_0" else "answer"
        if isinstance(action, ParseError):
            return Transition(state._replace(**{key: "?"}), local=-0.25)
        right = int(action) == state.secret
        after = state._replace(**{key: action})
        if agent == "teller_0":
            pay = 0.5 * (right and not state.is_paid)
            after = after._replace(is_paid=right or state.is_paid)
            return Transition(after, local=pay, info={"told": int(action)})
        return Transition(after, team=float(right), terminated=right, success=right)

    def _ansi(self, state):
        return f"secret {state.secret}"

    def _scripted(self, state, agent, policy, rng):
        return str(state.secret if policy == "oracle" else rng.randrange(1, 100))


@pytest.fixture
def heard_sigint():
    """Processes that are started listen to SIGINT, which background jobs of a shell ignore."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture
def guess_env():
    """The class of the environment."""
    return GuessEnv


@pytest.fixture
def guess_id(monkeypatch):
    """The id of the environment, registered for one test."""
    monkeypatch.setattr("pettingllms.registry._registered", {})
    pettingllms.register("guess_v0", GuessEnv)
    return "guess_v0"


@pytest.fixture
def distribution(tmp_path):
    """Return a function that lays out a made-up distribution, and returns its folder.

    Given are its name, a group of entry points, these (name -> value), and modules (name -> text).
    """

    def distribution(name, group, points, **modules):
        folder = tmp_path / name
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{point} = {value}" for point, value in points.items()), ""]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        return folder

    return distribution


class Scripted:
    """A policy that says what a function of the prompt gives, or raises it."""

    def __init__(self, say):
        self.say = say
        self.prompts = []
        self.is_closed = False

    async def check(self, env):
        pass

    async def sample(self, prompts, n, sampling):
        self.prompts += prompts
        text = self.say(prompts[0])
        if isinstance(text, Exception):
            raise text
        await asyncio.sleep(0)
        return [Answer((Completion(text, "stop"),), Usage(1, 0, 10, 3))]

    async def aclose(self):
        self.is_closed = True


@pytest.fixture
def scripted(monkeypatch):
    """Return a function that makes a name a policy of this kind."""
    made = {}
    original = pettingllms.policies.load_policy

    def load(name, settings=None):
        return made[str(name)] if str(name) in made else original(name, settings)

    monkeypatch.setattr("pettingllms.policies.loading.load_policy", load)

    def add(name, say):
        made[name] = Scripted(say)
        return made[name]

    return add
