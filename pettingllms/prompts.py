"""Prompt templates: what an agent reads, replaceable per role."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pettingllms.arguments import check_kind
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.files import packaged

StateT = TypeVar("StateT")


class PromptTemplate(NamedTuple):
    """The texts that one role reads, with `str.format` placeholders such as `{board}`.

    An environment documents its placeholders in `prompt_fields`. A literal brace is doubled. Words
    that depend on a number stand behind it, with # for the number: `{max_turns:# turn|# turns}`.
    """

    system: str
    """Who the agent is and what the rules are; the system message of a chat."""
    user: str
    """The present situation; the user message of a chat."""
    update: str = ""
    """What is new since the agent's last turn (delta mode); empty: same as `user`."""


def templates_in(package: str) -> dict[str, PromptTemplate]:
    """Role -> template, as the `prompts.toml` of a package has them."""
    return {role: PromptTemplate(**parts) for role, parts in packaged(package).items()}


@dataclass(frozen=True, slots=True)
class PromptField(Generic[StateT]):
    """A placeholder of prompts."""

    meaning: str
    """Its meaning, for authors of prompts."""
    read: Callable[[StateT, str, int], object]
    """Returns its value, given state, agent and turn as in `GameHooks._fields`."""


def of_state(meaning: str, show: Callable[[StateT], object]) -> PromptField[StateT]:
    """A placeholder whose value depends on the state alone: the same for all agents and turns."""
    return PromptField(meaning, lambda state, agent, turn: show(state))


TURN: PromptField[Any] = PromptField(
    "the present turn, from 1", lambda state, agent, turn: turn + 1
)
"""The placeholder `turn`."""


def meanings(fields: Mapping[str, PromptField[Any]]) -> dict[str, str]:
    """Name -> meaning of placeholders, for `TextEnv.prompt_fields`."""
    return {name: field.meaning for name, field in fields.items()}


class PromptFields(Mapping[str, object], Generic[StateT]):
    """The values of placeholders at a moment, each computed when a template asks for it.

    Most templates use few of the placeholders that a game offers. A game that returns this from
    `_fields` computes those, and no others. A text that costs more, such as a drawing of a board,
    is best made by a function of what it shows under `functools.lru_cache`: agents, forks and later
    turns then share it for as long as nothing in it has changed.

    Args:
        fields: Name -> placeholder.
        state: As in `GameHooks._fields`, as are the next two.
        agent: The agent that reads.
        turn: The turn.
    """

    __slots__ = ("moment", "source")

    def __init__(
        self, fields: Mapping[str, PromptField[StateT]], state: StateT, agent: str, turn: int
    ) -> None:
        self.source = fields
        self.moment = (state, agent, turn)

    def __getitem__(self, name: str) -> object:
        return self.source[name].read(*self.moment)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)


def as_observation(messages: Sequence[Mapping[str, str]]) -> str:
    """What `observe` gives where `messages` gives these: their contents, as one text."""
    return "\n\n".join(message["content"] for message in messages)


def written(value: object, layout: str, conversion: str | None = None) -> str:
    """A value in its layout, which may be words for one and for several of it."""
    if "|" in layout:
        return layout.split("|")[str(value) != "1"].replace("#", str(value))
    return format(string.Formatter().convert_field(value, conversion), layout)  # pyright: ignore[reportArgumentType]


def _reading(
    read: Callable[[Any, str, int], object], layout: str, conversion: str | None
) -> Callable[[Any, str, int], object]:
    return lambda state, agent, turn: written(read(state, agent, turn), layout, conversion)


class CompiledText:
    """A text with `str.format` placeholders, parsed once so that it fills in fast.

    Args:
        text: A text that `resolve_prompts` accepts.
    """

    __slots__ = ("_before", "_forms", "_pattern", "_reads", "_source", "_text", "names")

    def __init__(self, text: str) -> None:
        self._text = text
        names: list[str] = []
        forms: list[tuple[str, str | None]] = []
        literals = [""]
        for literal, name, layout, conversion in string.Formatter().parse(text):
            literals[-1] += literal
            if name is not None:
                names.append(name)
                forms.append((layout or "", conversion))
                literals.append("")
        self.names = tuple(names)
        """The placeholders, in order."""
        self._forms = forms
        # The rules of a game make the first literal long, and the % operator would search all of it
        # for placeholders each time.
        self._before = literals[0]
        self._pattern = "%s".join(["", *(one.replace("%", "%%") for one in literals[1:])])
        self._source: Mapping[str, PromptField[Any]] | None = None
        self._reads: tuple[Callable[[Any, str, int], object], ...] = ()

    def __reduce__(self) -> tuple[type[CompiledText], tuple[str]]:
        return CompiledText, (self._text,)  # without the functions of a game

    def fill(self, fields: Mapping[str, object]) -> str:
        """The text with the values of its placeholders; looks up no others."""
        if type(fields) is not PromptFields:
            if missing := [name for name in self.names if name not in fields]:
                allowed = "values of all placeholders of the prompt; missing: " + ", ".join(missing)
                raise InvalidArgument("result of _fields", dict(fields), allowed)
            shown = [written(fields[n], *f) for n, f in zip(self.names, self._forms, strict=True)]
            return self._before + self._pattern % tuple(shown)
        # Nearly all texts that agents read are made here. The placeholders of an environment are
        # the same at every moment, so which functions to call is looked up once.
        if fields.source is not self._source:
            self._source = fields.source
            placeholders = zip(self.names, self._forms, strict=True)
            found = [(fields.source[name].read, form) for name, form in placeholders]
            self._reads = tuple(
                read if form == ("", None) else _reading(read, *form) for read, form in found
            )
        state, agent, turn = fields.moment
        values: list[object] = []
        for read in self._reads:  # twice as fast as a comprehension, which is a function of its own
            values.append(read(state, agent, turn))
        return self._before + self._pattern % tuple(values)


class PreparedTemplate:
    """A prompt template prepared for filling in."""

    __slots__ = ("system", "update", "user", "whole")

    def __init__(self, prompt: PromptTemplate) -> None:
        self.system = CompiledText(prompt.system)
        self.user = CompiledText(prompt.user)
        self.update = CompiledText(prompt.update or prompt.user)
        joined = f"{prompt.system}\n\n{prompt.user}" if prompt.system else prompt.user
        self.whole = CompiledText(joined) if self.system.names == () else None
        """System and user text in one, if it is certain whether there is a system text."""


def resolve_prompts(
    defaults: Mapping[str, PromptTemplate],
    replacements: Mapping[str, Any] | None,
    fields: Mapping[str, str],
) -> dict[str, PromptTemplate]:
    """The template of every role, with the user's replacements checked.

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
    """Whether strings or integers can be formatted so, or words for one and for several are."""
    if "|" in layout:
        return layout.count("|") == 1
    for sample in ("", 0):
        try:
            format(sample, layout)
        except ValueError:
            continue
        return True
    return False


def history_text(unchanged: str) -> str:
    """The line, with its line break, on a turn that changed nothing; empty without one."""
    return f"\nThe last turn changed nothing: {unchanged}." if unchanged else ""


HISTORY = "a line on a last turn that changed nothing; begins with a line break unless it is empty"
"""Meaning of the placeholder `history`."""
