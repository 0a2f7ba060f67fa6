"""The page of an environment: its class docstring, completed with what all pages say alike."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

EnvT = TypeVar("EnvT", bound=type)

SECTIONS = (
    "Task",
    "Agents and roles",
    "Observation",
    "Action",
    "Reward",
    "Termination",
    "Info keys",
    "Arguments",
    "Example",
    "Version history",
    "Source",
)
"""Headings of the class docstring, in this order."""

ITEM = re.compile(r"^\s*[-*]\s+`(\w+)`", re.MULTILINE)
"""An info key or an argument in the list of its section."""

_INFOS = {"reward_parts": "with `parse_error`, `success` and `turn` as in every environment."}
_ARGUMENTS = {
    "max_turns": "turns of an episode.",
    "alpha": "weight of the team reward.",
    "reward": '`"shaped"`: the table above; `"outcome"`: 1 for the team when the task is solved, '
    "nothing else.",
    "observation_mode": '`"full"` prompts, or `"delta"`: from the second turn on only what is new.',
    "prompts": "role -> replacement of its prompt.",
    "schema": "schema of the rows of a file or hub data set; None: recognised by the fields.",
    "families": "names of the built-in families to use; None: all.",
    "sandbox": "runs programs; None: the one that all environments share.",
    "verifier": "compares answers; None: the one that all environments share.",
}
_EXAMPLE = """\
```python
import random

import pettingllms

env = pettingllms.make({call})
env.reset(seed=7)
rng = random.Random(0)
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    done = terminated or truncated
    env.step(None if done else env.unwrapped.scripted_action(agent, {policy}, rng))
```"""


def sections_of(docstring: str) -> dict[str, str]:
    """Heading -> text of a class docstring with the fixed sections.

    A heading is a line of its own that starts with `## `.
    """
    parts = re.split(r"^## (.+)$", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {name.strip(): text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def page(
    sections: Callable[[type], Mapping[str, str]] = lambda kind: {},
    infos: Mapping[str, str] = {},
    arguments: Mapping[str, str] = {},
    policy: str = "oracle",
    **example: Any,
) -> Callable[[EnvT], EnvT]:
    """Complete the docstring of an environment's class with what many pages say alike.

    That are arguments of the constructor that the docstring does not explain, infos, an example
    in which a scripted policy solves a level, and the history of a first version. What the
    docstring says itself stays as it is.

    Args:
        sections: Class -> heading -> text of sections that take the place of the docstring's own.
        infos: Info key -> what it means.
        arguments: Name -> what it means, of arguments that games of a kind share.
        policy: The scripted policy of the example.
        **example: The arguments of the example.
    """

    def completed(kind: EnvT) -> EnvT:
        env_id, modes = kind.metadata["name"], kind.metadata["render_modes"]
        mode = " or ".join(f'`"{one}"`' for one in modes).replace(" or ", ", ", len(modes) - 2)
        extra = " (needs the extra `render`)" if "rgb_array" in modes else ""
        known = {**_ARGUMENTS, **arguments, "render_mode": f"{mode}{extra}."}
        taken = [name for name in inspect.signature(kind).parameters if name in known]
        call = ", ".join([_shown(env_id), *(f"{k}={_shown(v)}" for k, v in example.items())])
        found = sections_of(kind.__doc__ or "") | dict(sections(kind))
        found["Info keys"] = _listed(found.get("Info keys", ""), _INFOS | dict(infos))
        found["Arguments"] = _listed(found.get("Arguments", ""), {k: known[k] for k in taken})
        found["Example"] = _EXAMPLE.format(call=call, policy=_shown(policy))
        found.setdefault("Version history", "- v0: first version.")
        head = inspect.cleandoc(kind.__doc__ or "").partition("\n## ")[0]
        parts = [f"## {name}\n\n{found[name].strip()}" for name in SECTIONS if name in found]
        kind.__doc__ = "\n\n".join([head.strip(), *parts])
        return kind

    return completed


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _listed(section: str, items: Mapping[str, str]) -> str:
    """A section with a list, with the items that it does not have yet behind its own."""
    own, gap, rest = section.strip().partition("\n\n")
    known = {*ITEM.findall(section)}
    more = [
        textwrap.fill(f"- `{name}`: {text}", 98, subsequent_indent="  ", break_long_words=False)
        for name, text in items.items()
        if name not in known
    ]
    return "\n".join(filter(None, [own, *more])) + gap + rest
