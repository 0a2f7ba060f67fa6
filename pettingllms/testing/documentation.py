"""An environment's class docstring is its web page; is it complete and true?"""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

from pettingllms.env import role_of
from pettingllms.errors import ConformanceError
from pettingllms.pages import ITEM, SECTIONS, sections_of
from pettingllms.testing.play import AnyEnv, mixed_actor, play, scripted_actor
from pettingllms.testing.report import ConformanceWarning, NotPromised, Subject

# Sections that no two environments have in the same words.
_PROSE = ("Task", "Agents and roles", "Observation", "Action", "Reward", "Source")
_COMMON_INFO = {"reward_parts", "parse_error", "success", "turn", "difficulty"}


def check_page(subject: Subject) -> None:
    """The class docstring has all sections and says what the environment does."""
    env = subject()
    if not sections_of(inspect.getdoc(type(env)) or ""):
        raise NotPromised(f"The docstring of {type(env).__name__} has no sections; see SECTIONS.")
    check_documentation(env)


def check_documentation(env: AnyEnv) -> None:
    """Prove that the class docstring says what the environment does.

    Args:
        env: A raw environment. Its class docstring must have the headings of `SECTIONS`; list every
            info key and every argument as "- `name`: ..."; and name every role of the team.

    Prose that is still that of the template of `pettingllms new` is a warning.

    Raises:
        ConformanceError: If something is missing, unknown or untrue.
    """
    sections = sections_of(inspect.getdoc(type(env)) or "")
    if tuple(sections) != SECTIONS:
        raise ConformanceError(
            f"the docstring of {type(env).__name__} has the sections {tuple(sections)}; "
            f"it needs {SECTIONS}, each as a line `## <name>`"
        )
    for role in dict.fromkeys(map(role_of, env.possible_agents)):
        if role not in sections["Agents and roles"]:
            raise ConformanceError(f"the role {role!r} is not described in 'Agents and roles'")
    _same("argument", set(ITEM.findall(sections["Arguments"])), _arguments(env))
    documented = set(ITEM.findall(sections["Info keys"])) - _COMMON_INFO
    undocumented = _info_keys(env) - documented
    if undocumented:
        raise ConformanceError(f"info keys that the docstring does not list: {undocumented}")
    if left := _of_template(sections):
        warnings.warn(
            f"the docstring of {type(env).__name__} still has the template's text under "
            f"{', '.join(left)}; say there what this environment does",
            ConformanceWarning,
            stacklevel=2,
        )


def _of_template(sections: Mapping[str, str]) -> list[str]:
    """The headings whose prose is that of the game that `pettingllms new` writes."""
    path = files("pettingllms") / "cli" / "template" / "my_game.py.tmpl"
    of_class = path.read_text(encoding="utf-8").partition("(TextEnv[State]):")[2]
    given = sections_of(of_class.split('"""')[1])
    return [name for name in _PROSE if sections[name].split() == given[name].split()]


def _arguments(env: AnyEnv) -> set[str]:
    parameters = inspect.signature(cast(Any, type(env))).parameters.values()
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}


def _info_keys(env: AnyEnv) -> set[str]:
    keys: set[str] = set()
    rng = random.Random(0)
    actors = [mixed_actor(rng), *(scripted_actor(p, rng) for p in env.scripted_policies)]
    for seed, actor in enumerate(actors):
        env.reset(seed=seed)
        for step in play(env, actor):
            keys |= set(step["info"])
    return keys - _COMMON_INFO


def _same(kind: str, documented: set[str], actual: set[str]) -> None:
    if documented != actual:
        raise ConformanceError(
            f"the documented {kind}s differ from the real ones: only documented "
            f"{sorted(documented - actual)}, only real {sorted(actual - documented)}"
        )
