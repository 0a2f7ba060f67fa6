"""Sudoku: puzzles with exactly one solution, of sizes 4, 6, 9 and 16."""

from pettingllms_envs.sudoku.env import SudokuEnv

__all__ = ["SudokuEnv"]
