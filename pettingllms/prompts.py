"""Prompt templates: what an agent is told, replaceable per role."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pettingllms.arguments import check_kind
from pettingllms.errors import InvalidArgument, suggestion


class PromptTemplate(NamedTuple):
    """The texts that one role reads, with `str.format` placeholders such as `{board}`.

    An environment documents its placeholders in `prompt_fields`. A literal brace is doubled.
    """

    system: str
    """Who the agent is and what the rules are; the system message of a chat."""
    user: str
    """The present situation; the user message of a chat."""
    update: str = ""
    """What is new since the agent's last turn (delta mode); empty: same as `user`."""


class PreparedTemplate:
    """A prompt template prepared for formatting: a system text without placeholders is ready."""

    __slots__ = ("constant_system", "system", "update", "user")

    def __init__(self, prompt: PromptTemplate) -> None:
        self.system, self.user = prompt.system, prompt.user
        self.update = prompt.update or prompt.user
        has_fields = any(
            name is not None for _, name, _, _ in string.Formatter().parse(self.system)
        )
        self.constant_system = None if has_fields else self.system.format()


def resolve_prompts(
    defaults: Mapping[str, PromptTemplate],
    replacements: Mapping[str, Any] | None,
    fields: Mapping[str, str],
) -> dict[str, PromptTemplate]:
    """Return the template of every role, with the user's replacements checked.

    Args:
        defaults: Role -> template of the environment.
        replacements: Role -> `PromptTemplate`, or a mapping with some of the keys `system`, `user`
            and `update`; keys that are left out keep the environment's text (a replaced `user`
            without an `update` is its own update).
        fields: Placeholder -> meaning, as documented by the environment.

    Raises:
        InvalidArgument: For an unknown role, key or placeholder, or an unbalanced brace.
    """
    resolved = dict(defaults)
    allowed = "None, or a mapping from roles to prompts"
    check_kind("prompts", replacements, Mapping | None, allowed)
    for role, replacement in (replacements or {}).items():
        if role not in defaults:
            raise InvalidArgument(
                f"prompts[{role!r}]",
                role,
                "the roles of this team: " + ", ".join(defaults) + suggestion(role, defaults),
            )
        resolved[role] = _replace(role, defaults[role], replacement)
    for role, template in resolved.items():
        for part, text in zip(template._fields, template, strict=True):
            _check_placeholders(f"prompts[{role!r}].{part}", text, fields)
    return resolved


def _replace(role: str, default: PromptTemplate, replacement: Any) -> PromptTemplate:
    parts = PromptTemplate._fields
    given = replacement._asdict() if isinstance(replacement, PromptTemplate) else replacement
    if not isinstance(given, Mapping) or not set(given) <= set(parts):
        raise InvalidArgument(
            f"prompts[{role!r}]",
            replacement,
            "a PromptTemplate or a mapping with keys from " + ", ".join(parts),
        )
    texts = dict(cast("Mapping[str, str]", given))
    for part, text in texts.items():
        check_kind(f"prompts[{role!r}].{part}", text, str, "a text")
    if "user" in texts:
        texts.setdefault("update", "")
    return default._replace(**texts)


def _check_placeholders(where: str, text: str, fields: Mapping[str, str]) -> None:
    try:
        found = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise InvalidArgument(
            where, text, "text with balanced braces", f"{error}; write a literal brace twice."
        ) from error
    for name, layout, conversion in found:
        if name not in fields:
            raise InvalidArgument(
                where,
                f"{{{name}}}",
                "the placeholders " + ", ".join(fields) + suggestion(name, fields),
            )
        if not _is_layout(layout or "") or conversion not in (None, "s", "r", "a"):
            given = f"!{conversion}" * (conversion is not None) + f":{layout}" * bool(layout)
            raise InvalidArgument(
                where, f"{{{name}{given}}}", "placeholders with a format that str.format knows"
            )


def _is_layout(layout: str) -> bool:
    """Return whether texts or whole numbers can be formatted so."""
    for sample in ("", 0):
        try:
            format(sample, layout)
        except ValueError:
            continue
        return True
    return False
