"""What the games of a team promise alike, whatever is played."""

import pytest

import pettingllms

GAMES = ("dining_v0", "fireworks_v0", "panel_v0", "relay_v0", "search_v0")


@pytest.mark.parametrize("env_id", GAMES)
def test_the_documented_example_solves_its_level(env_id):
    doc = type(pettingllms.make(env_id).unwrapped).__doc__
    example = doc.split("```python\n")[1].split("```")[0]
    lines = [line.removeprefix("    ") for line in example.split("\n")]
    scope = {}
    exec(compile("\n".join(lines), "example", "exec"), scope)
    assert scope["info"]["success"]
