"""Catch: a ball falls, a paddle below it must be there. Learned from pixels."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ...core.errors import ConfigError
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['Catch']

SMALLEST_BOARD = 8  # On smaller boards random play catches too often.
MOVES = (-1, 0, 1)  # columns per action: left, stay, right
BALL = (255, 170, 40)
PADDLE = (60, 140, 255)


class Catch(Env):
    """One ball per episode, on a board of `board` x `board` cells.

    The ball starts in a random column of the top row and falls one row per step. The
    paddle, one cell wide, starts in the middle of the bottom row and moves left, stays
    or moves right. The episode ends when the ball arrives at the bottom: +1 if the
    paddle is there, -1 otherwise, 0 before that.

    action: int32 in {0: left, 1: stay, 2: right}.
    image: [size, size, 3] uint8; `size` is a multiple of `board`.
    """

    optimum = 1.0  # every column can be reached in board - 1 steps

    def __init__(self, size: int = 64, board: int = 8, seed: int | None = None) -> None:
        if board < SMALLEST_BOARD:
            raise ConfigError(f'Catch needs board >= {SMALLEST_BOARD}, got {board}.')
        if size < board or size % board:
            raise ConfigError(
                f'Catch draws a board of {board} x {board} cells, so size must be a '
                f'multiple of {board}, got {size}. The nearest one is '
                f'{max(1, round(size / board)) * board}.'
            )
        self._board = board
        self._cell = size // board
        self._random = np.random.default_rng(seed)
        self._row = 0
        self._column = 0
        self._paddle = 0
        self._over = True

    @property
    def random_score(self) -> float:
        """Mean score of random play, exact.

        The ball's column is uniform and independent of where a blind paddle ends up,
        so the paddle is below it with probability 1 / board.
        """
        return 2 / self._board - 1

    @property
    def obs_space(self) -> Spaces:
        size = self._board * self._cell
        return obs_spaces({'image': elements.Space(np.uint8, (size, size, 3))})

    @property
    def act_space(self) -> Spaces:
        return act_spaces({'action': elements.Space(np.int32, (), 0, len(MOVES))})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin()
        moved = self._paddle + MOVES[int(action['action'])]
        self._paddle = min(max(moved, 0), self._board - 1)
        self._row += 1
        self._over = self._row == self._board - 1
        caught = self._paddle == self._column
        reward = (1.0 if caught else -1.0) if self._over else 0.0
        return make_obs(
            {'image': self._render()},
            reward=reward,
            is_last=self._over,
            is_terminal=self._over,
        )

    def _begin(self) -> dict[str, Any]:
        self._row = 0
        self._column = int(self._random.integers(self._board))
        self._paddle = self._board // 2
        self._over = False
        return make_obs({'image': self._render()}, is_first=True)

    def _render(self) -> np.ndarray:
        size = self._board * self._cell
        image = np.zeros((size, size, 3), np.uint8)
        image[self._pixels(self._board - 1, self._paddle)] = PADDLE
        image[self._pixels(self._row, self._column)] = BALL
        return image

    def _pixels(self, row: int, column: int) -> tuple[slice, slice]:
        cell = self._cell
        return (
            slice(row * cell, (row + 1) * cell),
            slice(column * cell, (column + 1) * cell),
        )

    def save(self) -> Any:
        return {
            'random': self._random.bit_generator.state,
            'ball': (self._row, self._column),
            'paddle': self._paddle,
            'over': self._over,
        }

    def load(self, data: Any) -> None:
        self._random.bit_generator.state = data['random']
        self._row, self._column = data['ball']
        self._paddle = data['paddle']
        self._over = data['over']
