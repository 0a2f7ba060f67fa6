import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.testing import check_env, play

LIBRARY = "textarena"
pytestmark = pytest.mark.filterwarnings("default")

CONFORMING = (
    "TicTacToe-v0",
    "ConnectFour-v0",
    "Nim-v0",
    "GuessTheNumber-v0",
    "FrozenLake-v0-random",
    "2048-v0-ultra-easy",
    "Sudoku-v0-very-easy",
)
BROKEN_BY_ILLEGAL_MOVES = ("Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0")


@pytest.fixture
def make_game(library):
    from pettingllms.adapters.textarena import TextArenaEnv

    return TextArenaEnv


@pytest.mark.parametrize("game", CONFORMING)
def test_the_contract_holds(make_game, game):
    check_env(make_game, game=game)
    check_env(make_game, game=game, observation_mode="delta", max_turns=4)


def test_a_game_is_played_and_paid(make_game):
    env = make_game("TicTacToe-v0")
    env.reset(seed=0)
    assert env.possible_agents == ["player_0", "player_1"]
    system, user = env.messages("player_0")
    assert "Tic Tac Toe" in system["content"]
    assert "Available Moves" in user["content"]
    for agent, cell in [(0, 0), (1, 3), (0, 1), (1, 4)]:
        assert env.agent_selection == f"player_{agent}"
        env.step(f"[{cell}]")
        assert set(env.rewards.values()) == {0.0}
    env.step("[2]")
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert all(env.terminations.values())
    assert env.infos["player_0"]["reason"] == "Player 0 has won!"
    assert not env.infos["player_0"]["success"], "a game with a loser is not a success"


def test_the_same_player_tries_again_after_an_illegal_move(make_game):
    env = make_game("TicTacToe-v0")
    env.reset(seed=0)
    env.step("[4]")
    env.step("[4]")
    assert env.agent_selection == "player_1"
    assert env.infos["player_1"]["invalid_move"]
    assert "already occupied" in env.observe("player_1")
    assert "already occupied" not in env.observe("player_0")
    env.step("[4]")
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}


def test_success_of_a_game_for_one(make_game):
    env = make_game("GuessTheNumber-v0")
    env.reset(seed=5)
    assert env.possible_agents == ["player_0"]
    wrong = env.fork()
    secret = env.state().game.opened().state.game_state["game_number"]
    env.step(f"[{secret}]")
    assert env.terminations["player_0"]
    assert env.infos["player_0"]["success"]
    assert env.rewards["player_0"] == 1
    wrong.step(f"[{secret % 20 + 1}]")
    assert not wrong.terminations["player_0"]
    assert "The target number is" in wrong.observe("player_0")


def test_delta_observations_bring_only_news(make_game):
    env = make_game("TicTacToe-v0", observation_mode="delta")
    env.reset(seed=0)
    env.step("[0]")
    env.step("[1]")
    news = env.observe("player_0")
    assert "placed their symbol (X) in cell 1" in news
    assert "Tic Tac Toe" not in news
    env.step("[2]")
    env.step("x")
    env.step("y")
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    full = make_game("TicTacToe-v0")
    full.reset(seed=0)
    full.step("[0]")
    full.step("[1]")
    assert len(news) < len(full.observe("player_0"))


def test_the_rules_reach_a_player_whose_first_move_comes_late(make_game):
    env = make_game("TicTacToe-v0", observation_mode="delta")
    env.reset(seed=0)
    env.step("illegal")
    env.step("[0]")
    assert env.turn == 1
    assert env.agent_selection == "player_1"
    assert "You are Player 1 in Tic Tac Toe" in env.observe("player_1")


def test_roles_can_be_named(make_game):
    env = make_game("ConnectFour-v0", roles=("first", "second"))
    assert env.possible_agents == ["first_0", "second_0"]
    check_env(make_game, game="ConnectFour-v0", roles=("first", "second"), max_turns=6)


@pytest.mark.parametrize("game", BROKEN_BY_ILLEGAL_MOVES)
def test_games_with_this_bug_are_still_broken(make_game, game):
    """They pay a text instead of a reward; the documentation lists them."""
    env = make_game(game)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="could not convert string to float"):
        play(env, lambda e, a: "nonsense")


def test_what_cannot_be_played_is_told(make_game):
    with pytest.raises(InvalidArgument, match='did you mean "TicTacToe-v0"'):
        make_game("TicTacTo-v0")
    with pytest.raises(InvalidArgument, match="at most 2"):
        make_game("SecretMafia-v0")
    with pytest.raises(InvalidArgument, match="at most 2"):
        make_game("TicTacToe-v0", num_players=1)
    with pytest.raises(InvalidArgument, match="from 1 to 2"):
        make_game("TicTacToe-v0", num_players=3)
    with pytest.raises(InvalidArgument, match="1 name, or of 2 names"):
        make_game("TicTacToe-v0", roles=("a", "b", "c"))


@pytest.mark.parametrize("value", [3, 2.5, True, "x", ["x", 3], {"x": 3}, b"x"], ids=repr)
def test_arguments_of_wrong_kinds_are_told(make_game, value):
    with pytest.raises(InvalidArgument, match="invalid game: got"):
        make_game(value)
    for name in ("num_players", "roles", "game_kwargs", "max_turns"):
        if (name, value) != ("max_turns", 3):
            with pytest.raises(InvalidArgument, match=f"invalid {name}: got .*; allowed: "):
                make_game("TicTacToe-v0", **{name: value})


def test_the_script_runs(library, run_script):
    won = "cell 2: rewards {'player_0': 1.0, 'player_1': -1.0}"
    assert won in run_script("textarena_game.py")
