"""Open-loop pictures: what is where, and which border means what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3.agent.report import open_loop_video

GREEN, RED = (0, 160, 0), (200, 0, 0)
SIDE = 6  # pixels, with a border of one around them
FRAME = SIDE + 2


render = jax.jit(open_loop_video, static_argnums=2)


def video(channels=3, sequences=6, steps=4, seen=2):
    """Truth is white, the model black but for the last sequence, where it is right."""
    shape = (sequences, steps, SIDE, SIDE, channels)
    truth = np.full(shape, 255, np.uint8)
    model = np.zeros(shape, np.float32)
    model[-1] = 1.0
    return np.asarray(render(truth, model, seen))


def tile(picture, row, column):
    """Pixels of one tile of one frame, with its border."""
    rows = slice(row * FRAME, (row + 1) * FRAME)
    return picture[rows, column * FRAME : (column + 1) * FRAME]


@pytest.mark.parametrize('channels', [1, 3, 4])
def test_videos_have_a_row_each_for_truth_model_and_error(channels):
    pictures = video(channels)
    assert pictures.dtype == np.uint8
    assert pictures.shape == (4, 3 * FRAME, 6 * FRAME, 3)
    inside = lambda row, column: tile(pictures[0], row, column)[1:-1, 1:-1]
    assert np.all(inside(0, 0) == 255)
    assert np.all(inside(1, 0) == 0)
    assert np.all(inside(2, 0) == 0)  # too dark by all there is
    assert np.all(inside(0, 5) == 255)
    assert np.all(inside(1, 5) == 255)
    assert np.all(inside(2, 5) == 127)  # no error is gray


def test_the_border_turns_from_seen_to_predicted():
    pictures = video(steps=5, seen=2)
    for step, picture in enumerate(pictures):
        color = GREEN if step < 2 else RED
        for row in range(3):
            for column in range(6):
                part = tile(picture, row, column)
                edges = [part[0], part[-1], part[:, 0], part[:, -1]]
                assert np.all(np.concatenate(edges) == color)


def test_predictions_outside_of_the_range_are_clipped():
    truth = jnp.zeros((1, 1, SIDE, SIDE, 3), jnp.uint8)
    picture = render(truth, jnp.full(truth.shape, 3.0), 1)[0]
    assert np.all(tile(picture, 1, 0)[1:-1, 1:-1] == 255)
