import os
import pickle
import re

import pytest

from pettingllms import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("size", 3, "4 to 64", "Choose a larger one."),
        errors.LevelFormatError("two players", 3, 7, "one player"),
        errors.LevelFormatError("empty"),
        errors.MissingDependency("pictures", "pillow", "render"),
        errors.ReplayDivergence(3, "rewards", 1, 2),
        errors.UnknownEnvironment("no x"),
    ],
)
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_messages_say_what_was_given_allowed_and_to_do():
    message = str(errors.InvalidArgument("size", 3, "4 to 64", "Choose a larger one."))
    assert message == "invalid size: got 3; allowed: 4 to 64. Choose a larger one."
    message = str(errors.InvalidArgument("tasks", [*range(10_000)], "split -> tasks"))
    assert re.fullmatch(
        r"invalid tasks: got \[0, 1, .{490,500}\.\.\.; allowed: split -> tasks", message
    )
    level = str(errors.LevelFormatError("two players", 3, 7, "one player"))
    assert level == "invalid level: two players (line 3, column 7); allowed: one player"
    missing = str(errors.MissingDependency("pictures", "pillow", "render"))
    assert re.search(r'pip install "pillow>=[\d.]+"$', missing)


@pytest.mark.parametrize("folder", ["/me", f"{os.path.dirname(os.__file__)}/site-packages/me"])
def test_an_error_is_told_with_the_line_of_whose_code_it_is(folder):
    with pytest.raises(ValueError, match="Expecting value") as raised:
        exec(compile("import json\n\njson.loads('')", f"{folder}/game.py", "exec"), {})
    error = raised.value.with_traceback(raised.tb.tb_next)  # without the line of this test
    assert errors.told(error).endswith(f"({folder}/game.py, line 3)")
