"""Boards that people write: XSB and Boxoban."""

import pytest

from pettingllms.errors import LevelFormatError
from pettingllms_envs.sokoban.generator import certify
from pettingllms_envs.sokoban.rules import warehouse_of
from pettingllms_envs.sokoban.text import level_text, read_level, read_levels_of_file

GOOD = "#######\n#@ $ .#\n# $  .#\n#  *  #\n#     #\n#######"


def test_reads_what_it_writes():
    level = read_level(GOOD)
    assert level_text(level) == GOOD
    assert (level.rows, level.cols) == (6, 7)
    assert level.boxes.bit_count() == level.goals.bit_count() == 3
    solution = warehouse_of(level).solve(level.start)
    assert (level.certificate, level.num_moves) == ("optimal", len(solution))
    on_goal = "#####\n#+$.#\n# $ #\n#   #\n#####"
    assert level_text(read_level("\n" + on_goal + "\n\n")) == on_goal


def test_too_large_and_too_many():
    wide = "#" * 65
    with pytest.raises(LevelFormatError, match="at most 64"):
        read_level(f"{wide}\n#@$.{'#' * 61}\n{wide}")
    boxes = "#" * 30 + "\n#@" + "$." * 13 + " #\n" + "#" * 30
    with pytest.raises(LevelFormatError, match="13 boxes and 13 goals"):
        read_level(boxes)


RAGGED = "  ####\n###  ####\n#     $ #\n# #  #$ #\n# . .#@ #\n#########"


def test_shorter_rows_are_filled_up():
    level = read_level(RAGGED)
    assert (level.rows, level.cols) == (6, 9)
    filled = "#########\n###  ####\n#     $ #\n# #  #$ #\n# . .#@ #\n#########"
    assert level == read_level(filled)
    assert level_text(level) == filled
    solution = warehouse_of(level).solve(level.start)
    assert warehouse_of(level).play(level.start, solution)[0].boxes == level.goals


def test_collections_with_titles_and_remarks_load():
    text = f"Title: Two\nAuthor: A person\n\n; 1\n\n{RAGGED}\nTitle: first\n\n{GOOD}\n; end\n"
    assert [level.cols for level in read_levels_of_file(text)] == [9, 7]
    with pytest.raises(LevelFormatError, match="unknown symbol 'T'"):
        read_level(f"{GOOD}\nTitle")


@pytest.mark.parametrize("name", ["unfiltered_train", "medium_valid", "hard"])
def test_boxoban_levels_load_and_are_certified(shared_data, name):
    text = shared_data(f"boxoban/{name}.txt").read_text()
    levels = read_levels_of_file(text)
    assert len(levels) == 50
    boards = [block.partition("\n")[2].rstrip("\n") for block in text.split(";") if block.strip()]
    assert [level_text(level) for level in levels] == boards
    for level in levels[:5]:
        assert level.certificate in ("none", "optimal")
        solution = warehouse_of(level).solve(level.start)
        assert certify(level) == level._replace(certificate="optimal", num_moves=len(solution))
        place, executed, *_ = warehouse_of(level).play(level.start, solution)
        assert (place.boxes, executed) == (level.goals, solution)
