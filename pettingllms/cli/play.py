"""`pettingllms play`.

Commands that a person types begin with a slash and cost no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import click
from rich.console import Console, Group
from rich.panel import Panel

from pettingllms.cli import options
from pettingllms.cli.app import stdout
from pettingllms.env import TextEnv, role_of, roles_of
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.evaluation.episode import Chats, has_ended, one_answer, prompt_of, remember
from pettingllms.policies import Policy, Prompt, Sampling, acted, load_policy
from pettingllms.registry import make
from pettingllms.seeding import derive_seed
from pettingllms.tables import visible
from pettingllms.transcript import RecordTranscripts

# Name of the team of one agent, in environments that have one.
ALONE = "single"


@click.command("play")
@click.argument("env_id", metavar="ID", shell_complete=options.complete_id)
@click.option(
    "-r",
    "--role",
    "person",
    metavar="ROLE",
    help="The role you play, or all.  [default: the last role of a turn, or alone]",
)
@options.policy_option
@options.env_option
@options.reset_option
@options.sampling_option
@options.number("--seed", least=0, help="Seed of the level.  [default: random]")
@options.path("--record", metavar="FILE", help="Keep a transcript.")
@options.policy_settings_options
def play_command(**values: Any) -> int:
    """Play one role yourself; the others follow policies.

    Without --role, --policy and a team in --env you play alone, if a team can be one agent.
    Otherwise roles without a --policy follow the first scripted policy of the environment.
    """
    kwargs = options.read_pairs(values["env_values"], "--env")
    # Who names nothing wants to see the game, not to wait for team-mates.
    is_open = not (values["person"] or values["policy_values"] or "team" in kwargs)
    if is_open and _can_be_alone(values["env_id"]):
        kwargs["team"] = ALONE
    env: TextEnv[Any] = make(values["env_id"], checks=False, **kwargs)
    roles = roles_of(env)
    person = values["person"] or roles[-1]
    if person not in (*roles, "all"):
        raise InvalidArgument(
            "--role", person, ", ".join(roles) + ", all" + suggestion(person, roles)
        )
    others = [] if person == "all" else [role for role in roles if role != person]
    assignment = options.read_policies(values["policy_values"], roles)
    for role in others:
        if role not in assignment and not env.scripted_policies:
            raise InvalidArgument(
                "--policy", None, f"a policy for {role}", "It has no scripted policy."
            )
        assignment.setdefault(role, env.scripted_policies[0] if env.scripted_policies else "")
    sampling = options.read_sampling(values["sampling_values"], roles)
    recorder = RecordTranscripts(env)
    recorder.reset(seed=values["seed"], options=options.read_reset(values["option_values"], env))
    settings = options.policy_settings(values)
    # One loop for the whole game: clients of servers keep their connections in it.
    with asyncio.Runner() as runner:
        policies = {role: load_policy(assignment[role], settings) for role in others}
        try:
            for policy in policies.values():
                runner.run(policy.check(recorder.env))
            game = _Game(recorder, policies, assignment, sampling, runner, stdout())
            assert recorder.transcript is not None
            if values["record"]:  # what cannot be written is told before a game is lost
                recorder.transcript.save(values["record"])
            try:
                game.play()
            finally:  # a game that was interrupted, or that a team-mate has left, was played too
                if values["record"]:
                    recorder.transcript.save(values["record"])
                    stdout().print(visible(f"recorded in {values['record']}", "dim"))
        finally:
            for policy in policies.values():
                runner.run(policy.aclose())
    return 0


def _can_be_alone(env_id: str) -> bool:
    """Whether an environment has a team of one agent."""
    try:
        make(env_id, checks=False, team=ALONE)
    except InvalidArgument:
        return False
    return True


@dataclass
class _Game:
    """One episode between a person and policies."""

    recorder: RecordTranscripts
    policies: Mapping[str, Policy]
    assignment: Mapping[str, str]
    sampling: Mapping[str, Sampling]
    runner: asyncio.Runner
    console: Console
    told_rules: set[str] = field(default_factory=set[str])
    """Agents whose rules the person has read."""
    chats: Chats = field(default_factory=Chats)
    earlier: list[Any] = field(default_factory=list[Any])
    """(snapshot of the recorder, chats) before each action of the person."""

    @property
    def env(self) -> TextEnv[Any]:
        """What is played."""
        return self.recorder.env

    def play(self) -> None:
        env = self.env
        seed = env.episode_seed
        self.console.print(
            visible(str(env.metadata["name"]), "bold cyan"), f"seed {seed}", f"[dim]{HELP}[/dim]"
        )
        while not has_ended(env):
            role = role_of(env.agent_selection)
            if role in self.policies:
                self._policy_acts(role)
            elif not self._person_acts():
                self.console.print("stopped before the end")
                return
        self._tell_end()

    def _policy_acts(self, role: str) -> None:
        sampling = self.sampling.get(role) or Sampling()
        prompt = self._prompt("play", self.env.agent_selection)
        completion, usage = self.runner.run(one_answer(self.policies[role], prompt, sampling))
        self._step(acted(completion, usage), self.assignment[role], show_text=True)
        remember(self.chats, prompt, completion.text)

    def _prompt(self, *what: str) -> Prompt:
        assert self.env.episode_seed is not None
        # Of the episode's seed: the same level played twice meets the same team-mates.
        seed = derive_seed(self.env.episode_seed, *what, self.env.turn)
        return prompt_of(self.env, self.chats, seed)

    def _person_acts(self) -> bool:
        """Ask the person for an action; False when they leave."""
        agent = self.env.agent_selection
        self._show_prompt(agent, whole=agent not in self.told_rules)
        self.told_rules.add(agent)
        while True:
            wish = ask(self.console, agent)
            match wish:
                case "quit":
                    return False
                case Say(text):
                    # A snapshot, not a replay: team-mates need not be asked again.
                    self.earlier.append((self.recorder.snapshot(), dict(self.chats)))
                    self._step(text, "you", show_text=False)
                    return True
                case "undo":
                    if self._undo():
                        return True
                case "prompt":
                    self._show_prompt(agent, whole=True)
                case "hint":
                    self._hint()

    def _undo(self) -> bool:
        if not self.earlier:
            self.console.print("nothing to take back", style="yellow")
            return False
        snapshot, self.chats = self.earlier.pop()
        self.recorder.restore(snapshot)
        self.console.print("taken back", style="yellow")
        return True

    def _hint(self) -> None:
        env = self.env
        if not env.scripted_policies:
            self.console.print("this environment has no scripted policy", style="yellow")
            return
        policy = env.scripted_policies[0]
        asked = one_answer(load_policy(f"scripted:{policy}"), self._prompt("hint"), Sampling())
        hint, _ = self.runner.run(asked)
        self.console.print(visible(f"{policy} would say:", "yellow"), visible(hint.text))

    def _show_prompt(self, agent: str, *, whole: bool) -> None:
        messages = self.env.messages(agent)
        shown = messages if whole else messages[-1:]
        parts = [visible(message["content"].rstrip() + "\n") for message in shown]
        parts[-1].rstrip()
        title = f"turn {self.env.turn + 1}: {agent} (you) reads"
        self.console.print(Panel(Group(*parts), title=title, title_align="left"))

    def _step(self, text: str, who: str, *, show_text: bool) -> None:
        env, agent = self.env, self.env.agent_selection
        self.recorder.step(text)
        if show_text:
            title = visible(f"{agent} ({who}) says")
            self.console.print(Panel(visible(text), title=title, title_align="left"))
        info = env.infos[agent]
        parts = info["reward_parts"]
        line = f"{agent}: team {parts['team']:+.3f}, local {parts['local']:+.3f}"
        self.console.print(visible(line, "dim"))
        if info["parse_error"]:
            self.console.print(visible(f"not understood: {info['parse_error']}", "yellow"))

    def _tell_end(self) -> None:
        env = self.env
        env.render_mode = "ansi"
        self.console.print(Panel(visible(str(env.render())), title="the end", title_align="left"))
        agent = env.agent_selection
        is_success = env.infos[agent]["success"]
        how = "solved" if is_success else "out of turns" if env.truncations[agent] else "failed"
        assert self.recorder.transcript is not None
        returns = self.recorder.transcript.returns()
        figures = ", ".join(f"{name} {value:+.3f}" for name, value in returns.items())
        style = "bold green" if is_success else "bold red"
        self.console.print(
            visible(how, style), visible(f"after turn {env.infos[agent]['turn'] + 1}")
        )
        self.console.print(visible(f"returns: {figures}"))


HELP = 'type your answer; """ begins and ends one of several lines; /help lists commands'

_COMMANDS = """\
/hint     what the first scripted policy would say
/prompt   show the whole prompt again
/undo     take back your last answer (and what followed)
/edit     write the answer in your editor
/quit     leave
An answer that begins with / is typed with two of them."""

_FENCE = '"""'


@dataclass(frozen=True)
class Say:
    """An answer, to be given to the environment as it is."""

    text: str


Wish = Say | Literal["hint", "prompt", "undo", "quit"]
"""An answer, or what else is wanted."""


def ask(console: Console, agent: str) -> Wish:
    """What the person typed; the end of the input means to leave."""
    while True:
        line = _read_line(console, f"{agent}> ")
        if line is None or line.strip() == "/quit":
            return "quit"
        if line.strip() == _FENCE:
            return Say(_several_lines(console))
        if not line.startswith("/"):
            return Say(line)
        if line.startswith("//"):
            return Say(line[1:])
        wish = _command(console, line.strip())
        if wish is not None:
            return wish


def _command(console: Console, name: str) -> Wish | None:
    match name[1:]:
        case "hint" | "prompt" | "undo" as wish:
            return wish
        case "edit":
            text = click.edit()
            return None if text is None else Say(text)
        case "help":
            console.print(_COMMANDS, markup=False, highlight=False)
        case _:
            console.print(f"no command {name!r}; /help lists them", style="yellow", markup=False)
    return None


def _several_lines(console: Console) -> str:
    lines: list[str] = []
    while (line := _read_line(console, "... ")) is not None and line.strip() != _FENCE:
        lines.append(line)
    return "\n".join(lines)


def _read_line(console: Console, prompt: str) -> str | None:
    """A line without its end; None at the end of the input."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # where it is missing, lines cannot be edited
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
        try:
            return input(prompt)
        except EOFError:
            console.print()
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
