"""One page per environment: its class docstring, its prompts, and an episode that is played now."""

from __future__ import annotations

import inspect
import io
import random
import re
from typing import Any

from markdown_text import PROSE, code, fenced, folded, table

import pettingllms
from pettingllms.pages import sections_of
from pettingllms.prompts import PromptTemplate
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor

SEED = 7
_MAX_STEPS = 6


def built_in_ids() -> list[str]:
    """The ids of the environments that this project provides."""
    ids = pettingllms.registered_ids()
    return [env_id for env_id in ids if pettingllms.spec(env_id).package == "pettingllms"]


def environment_table() -> str:
    """The table of environments, with links to their pages."""
    # Made with defaults: the agents of another team are on the page itself.
    rows: list[list[str]] = []
    for env_id in built_in_ids():
        env = pettingllms.make(env_id, checks=False)
        agents = ", ".join(map(code, env.possible_agents))
        policies = ", ".join(map(code, env.scripted_policies))
        rows.append([f"[{env_id}]({env_id}.md)", _summary(env), agents, policies])
    return table(["id", "task", "agents by default", "scripted policies"], rows)


def environment_page(env_id: str, images: list[str]) -> str:
    """The page of an environment.

    Args:
        env_id: Id of the environment.
        images: Names of pictures next to the page, in the order of an episode.
    """
    env = pettingllms.make(env_id, checks=False)
    sections = sections_of(type(env).__doc__ or "")
    sections["Arguments"] += "\nWith all defaults:\n\n" + fenced(_call(env_id, env), "python")
    parts = [f"# {env_id}\n\n{_summary(env)}\n"]
    parts += [f"![A level of {env_id}]({name}){{ .level }}\n" for name in images[:1]]
    parts += [f"## {name}\n\n{_prose(text)}\n" for name, text in sections.items()]
    parts += ["## Levels of difficulty\n", _levels(env_id, env)] if env.difficulties else []
    parts += ["## Prompts\n", _prompts(env), "## An episode\n", _episode(env, images[1:])]
    return "\n".join(parts)


def pictures(env_id: str) -> dict[str, bytes]:
    """File name -> PNG of the first and the last moment of the episode on the page."""
    env = pettingllms.make(env_id, checks=False)
    if "rgb_array" not in env.metadata["render_modes"]:
        return {}
    # Set afterwards: the page shows the call with default arguments.
    env.render_mode = "rgb_array"
    env.reset(seed=SEED)
    start = env.render()
    play(env, scripted_actor(_policy(env), random.Random(0)))
    moments = {f"{env_id}_start.png": start, f"{env_id}_end.png": env.render()}
    return {name: _png(image) for name, image in moments.items()}


def _png(image: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _summary(env: Any) -> str:
    return inspect.cleandoc(type(env).__doc__ or "").splitlines()[0]


def _prose(text: str) -> str:
    """A section in which a fence that is named within a sentence is inline code."""
    return re.sub(r"(?<=\S )```(\w+)", r"```` ```\1 ````", text.strip())


def _policy(env: Any) -> str:
    # An episode that is solved shows more of the game.
    names = env.scripted_policies
    return "oracle" if "oracle" in names else names[0]


def _call(env_id: str, env: Any) -> str:
    parameters = inspect.signature(type(env)).parameters.values()
    lines = [f"    {p.name}={p.default!r}," for p in parameters if p.default is not p.empty]
    return "\n".join(["env = pettingllms.make(", f'    "{env_id}",', *lines, ")"])


def _levels(env_id: str, env: Any) -> str:
    rows = [
        [
            env.difficulties.names_of(k),
            ", ".join(code(f"{key}={value!r}") for key, value in level.items()),
        ]
        for k, level in enumerate(env.difficulties.attributes)
    ]
    calls = (f'pettingllms.make("{env_id}", difficulty={level})' for level in ("0", '"easy"'))
    head = "From easy to hard; {} and {} are the same. Infos say `difficulty`.\n\n"
    return head.format(*map(code, calls)) + table(["difficulty", "arguments"], rows)


def _prompts(env: Any) -> str:
    templates: dict[str, PromptTemplate] = {**type(env).default_prompts, **env.prompts}
    lines = [
        "What each role reads with default arguments. Replace any of it with "
        '`make(..., prompts={"ROLE": {"system": ..., "user": ...}})`.\n'
    ]
    for role, template in templates.items():
        parts = [("system", template.system), ("user", template.user)]
        parts += [("update (delta mode)", template.update)] if template.update else []
        body = "\n".join(f"{name}:\n\n{fenced(text, PROSE)}" for name, text in parts if text)
        lines.append(folded(f"Prompt of {role}", body))
    fields = [[code("{" + name + "}"), meaning] for name, meaning in env.prompt_fields.items()]
    lines.append(folded("Placeholders", table(["placeholder", "meaning"], fields)))
    return "\n".join(lines)


def _episode(env: Any, images: list[str]) -> str:
    policy = _policy(env)
    env.reset(seed=SEED)
    start = env._ansi(env.state())
    steps = play(env, scripted_actor(policy, random.Random(0)))
    ending = "terminated" if steps[-1]["terminated"] else "truncated"
    lines = [
        f"Default arguments, `reset(seed={SEED})`, every role played by the scripted policy "
        f"`{policy}`. It starts with:\n",
        fenced(start, PROSE),
    ]
    # Whole episodes would be pages long, and their later turns look alike.
    for step in steps[:_MAX_STEPS]:
        lines.append(_step(step))
    if len(steps) > _MAX_STEPS:
        lines.append(f"{len(steps) - _MAX_STEPS} more steps follow.\n")
    success = "solved" if steps[-1]["info"]["success"] else "not solved"
    lines.append(f"The episode ends after {len(steps)} steps, {ending}, {success}:\n")
    lines.append(fenced(env._ansi(env.state()), PROSE))
    lines += [f"![The end of the episode]({name}){{ .level }}\n" for name in images]
    return "\n".join(lines)


def _step(step: dict[str, Any]) -> str:
    info = step["info"]
    parts = info["reward_parts"]
    facts = [f"team {parts['team']:+.3f}", f"local {parts['local']:+.3f}"]
    facts += [f"unreadable: {info['parse_error']}"] if info["parse_error"] else []
    return "\n".join(
        [
            f"### Turn {info['turn'] + 1}, {step['agent']}\n",
            folded(f"{step['agent']} reads", fenced(step["observation"], PROSE)),
            "It writes:\n",
            fenced(step["action"], PROSE),
            f"Reward: {', '.join(facts)}.\n",
        ]
    )
