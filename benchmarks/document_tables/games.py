"""Tables of the games: what they are, what their rewards pay, how long their prompts are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pettingllms
from document_tables.markdown import RESULTS, caption, markdown, result


def environments() -> str:
    """Return the table of the built-in environments, from their classes."""
    rows = [
        [*_described(cls, env_id), ", ".join(cls.scripted_policies)] for env_id, cls in _games()
    ]
    return markdown(["id", "task", "roles", "scripted policies"], rows)


def environments_in_brief() -> str:
    """Return id, task and roles of the built-in environments."""
    return markdown(["id", "task", "team"], [_described(cls, env_id) for env_id, cls in _games()])


def _games() -> Iterator[tuple[str, Any]]:
    """Yield id and class of every built-in environment."""
    for env_id in pettingllms.registered_ids():
        spec = pettingllms.spec(env_id)
        if spec.package == "pettingllms":
            yield env_id, spec.load()


def _described(cls: Any, env_id: str) -> list[str]:
    task = (cls.__doc__ or "").strip().splitlines()[0]
    return [f"`{env_id}`", task, ", ".join(cls.default_prompts)]


def ladder() -> str:
    """Return success and return of every policy of the ladder, game by game."""
    data = result("games_ladder")
    names = list(data["ladders"])
    policies = dict.fromkeys(r["policy"] for rungs in data["ladders"].values() for r in rungs)
    rows: list[list[str]] = []
    for policy in sorted(policies, key=lambda name: name.startswith("oracle")):
        found = [{r["policy"]: r for r in data["ladders"][name]}.get(policy) for name in names]
        cells = [f"{100 * r['success']:.0f} %, {r['return']:+.3f}" if r else "" for r in found]
        rows.append([policy, *cells])
    programs = [data["programs"].get(name) for name in names]
    rows.append(["fixed program", *("" if p is None else f"{100 * p:.0f} %" for p in programs)])
    return markdown(["policy", *names], rows) + caption(data)


def leaderboard() -> str:
    """Return the entries of the leader board, suite by suite, the best first."""
    folder = RESULTS.parent / "leaderboard"
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    games = list(dict.fromkeys(game for entry in entries for game in entry["games"]))
    entries.sort(key=lambda entry: (entry["suite"], -entry["score"]["value"], entry["name"]))
    rows = [
        [
            entry["name"],
            _score(entry["score"]),
            *(_climbed(entry["games"].get(game)) for game in games),
            "; ".join([entry["suite"], entry["versions"]["pettingllms"], *entry["sampling"]]),
        ]
        for entry in entries
    ]
    names = [game.rpartition("_")[0].replace("_", " ") for game in games]
    return markdown(["entry", "levels passed", *names, "suite, version, sampling"], rows)


def _score(figures: dict[str, float]) -> str:
    low, mid, high = (f"{100 * figures[key]:.0f}" for key in ("low", "value", "high"))
    return f"{mid} % ({low} to {high})"


def _climbed(game: dict[str, Any] | None) -> str:
    """Return the hardest level passed, and the success there; empty if it was not played."""
    if game is None or game["skipped"]:
        return ""
    hardest = f"{game['passed'][-1]}" if game["passed"] else "none"
    return f"{hardest}: {_score(game['success'])}"


def cheap_policies() -> str:
    """Return the cheap policy with the largest share of the oracle's pay, role by role."""
    data = result("cheap_policies")
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = {}
    for case in data["environments"]:
        name = str(next(iter(case["arguments"].values()), "default"))
        for row in case["roles"]:
            entry = (row["share"], name, row["policy"][row["role"]])
            found.setdefault((case["env"], row["role"]), []).append(entry)
    rows: list[list[str]] = []
    for (env_id, role), entries in found.items():
        share, name, policy = max(entries)
        cells = [f"{share:.0%}", name, policy] if share else ["0%", "", ""]
        rows.append([f"`{env_id}`", role, *cells])
    return markdown(["environment", "role", "share", "level", "policy"], rows) + caption(data)


def readable_answers() -> str:
    """Return which answers of a small chat model can be read, by environment and role."""
    data = result("readable_answers")
    rows: list[list[str]] = []
    for game in data["games"]:
        after = game.get("demonstrated", {}).get("roles", {})
        for role, before in game["untouched"]["roles"].items():
            tokens = [
                f"{before[f'{kind}_tokens']:.0f}" if before["answers"] else "" for kind in _KINDS
            ]
            figures = [_unreadable(before), _cut(before), *tokens, _unreadable(after.get(role))]
            rows.append([f"`{game['env']}`", role, *figures])
    head = ["environment", "role", "unreadable", "cut", "tokens of a prompt", "of an answer"]
    return markdown([*head, "unreadable after demonstrations"], rows) + caption(data)


_KINDS = ("prompt", "completion")


def _unreadable(role: dict[str, Any] | None) -> str:
    if role is None:
        return ""
    if not role["answers"]:
        return "never asked"
    share, low, high = (100 * value for value in role["unreadable"])
    return f"{share:.0f} % ({low:.0f} to {high:.0f}) of {role['answers']}"


def _cut(role: dict[str, Any]) -> str:
    return f"{100 * role['cut']:.0f} %" if role["answers"] else ""


def tokens() -> str:
    """Return the tokens of the first prompt of every agent."""
    data = result("prompt_tokens")
    rows = [
        [game, team, ", ".join(f"{agent} {size['tokens']}" for agent, size in sizes.items())]
        for game, teams in data["prompts"].items()
        for team, sizes in teams.items()
    ]
    return markdown(["game", "team", "tokens"], rows) + _counted(data)


def boards() -> str:
    """Return how many cells of a board share a token with another one, view by view."""
    data = result("prompt_tokens")
    rows = [
        [game, f"`{{{view}}}`", *(str(seen[key]) for key in ("cells", "tokens", "merged_cells"))]
        for game, views in data["boards"].items()
        for view, seen in views.items()
    ]
    header = ["game", "placeholder", "cells", "tokens", "cells that share a token"]
    return markdown(header, rows) + _counted(data)


def levels() -> str:
    """Return the levels of difficulty: arguments, distinct boards, lengths, who solves them."""
    data = result("games_levels")
    rows: list[list[str]] = []
    for row in data["levels"]:
        low, middle, high = row.get("length", ("", "", ""))
        rows.append(
            [
                f"`{row['env_id']}`",
                row["names"],
                ", ".join(f"{name}={value!r}" for name, value in row["arguments"].items()),
                f"{row['num_distinct']:,}",
                f"{middle:g} ({low} to {high})" if "length" in row else "",
                f"{row['rule_name']} {100 * row['rule']:.0f} %",
                f"{100 * row['random']:.0f} %",
                f"{100 * row['program']:.0f} %" if "program" in row else "",
            ]
        )
    header = ["id", "level", "arguments", f"different among {data['num_draws']:,} test boards"]
    header += ["shortest solution", "simple rule", "random", "fixed program"]
    boards = f"\nShares are of {data['num_levels']} boards.\n"
    return markdown(header, rows) + boards + caption(data)


def _counted(data: dict[str, Any]) -> str:
    return f"\nCounted on {data['date']} by {data['tokenizer']}, with `{data['command']}`.\n"


def code_rewards() -> str:
    """Return what honest and degenerate testers and coders earn for themselves."""
    data = result("code_rewards")
    sources = data["sources"]
    rows = [
        [side.removesuffix("s"), name, *(f"{sources[s][side][name]:.2f}" for s in sources)]
        for side in ("testers", "coders")
        for name in next(iter(sources.values()))[side]
    ]
    header = [f"{name}, {found['num_problems']} problems" for name, found in sources.items()]
    return markdown(["role", "writes", *header], rows) + caption(data)


def math_verdicts() -> str:
    """Return the false verdicts of the verifier and of math-verify alone."""
    data = result("math_verdicts")
    rows = [
        [
            name,
            f"{found['num_false_refusals']:,} of {found['num_right']:,}",
            f"{found['num_false_acceptances']:,} of {found['num_wrong']:,}",
        ]
        for name, found in (
            ("`math_v0`", data["verifier"]),
            ("math-verify alone", data["math_verify_alone"]),
        )
    ]
    return markdown(["verifier", "right, but refused", "wrong, but accepted"], rows) + caption(data)


def viewer() -> str:
    """Return what the pages of long runs take."""
    sizes: dict[str, dict[str, Any]] = result("viewer")["sizes"]
    rows = [
        [what, *(f"{entry[key]:.3g} {unit}" for entry in sizes.values())]
        for what, key, unit in (
            ("rollouts.jsonl", "rollouts_mb", "MB"),
            ("the page", "page_mb", "MB"),
            ("write the page, with every tree played again", "write_s", "s"),
            ("open it until it is drawn", "open_s", "s"),
            ("go to another episode, median", "episode_s", "s"),
            ("the slowest of them", "episode_max_s", "s"),
            ("go to another candidate", "candidate_s", "s"),
            ("first look at the curves of 2,000 steps", "curves_s", "s"),
            ("open it with a search through all texts", "find_s", "s"),
        )
    ]
    names = [f"{name}, {entry['num_episodes']} trees" for name, entry in sizes.items()]
    return markdown(["", *names], rows)
