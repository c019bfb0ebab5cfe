"""Pictures of what the model predicts."""

import jax
import jax.numpy as jnp

__all__ = ['open_loop_video']

BORDER = 1  # pixels around each image
SEEN, PREDICTED = (0, 160, 0), (200, 0, 0)  # border while observing / imagining


def open_loop_video(truth: jax.Array, model: jax.Array, seen: int) -> jax.Array:
    """truth [N, T, H, W, C] uint8, model the same in 0..1 -> uint8 [T, h, w, 3].

    Rows: truth, model, error (gray is none). Columns: the N sequences. The border is
    green for the first `seen` steps, which the model observed, and red after.
    """
    truth = _to_rgb(truth.astype(jnp.float32) / 255)
    model = _to_rgb(jnp.clip(model, 0, 1))
    error = (model - truth + 1) / 2
    rows = jnp.stack([truth, model, error])
    pixels = (255 * rows).astype(jnp.uint8)
    framed = _frame(pixels, seen)
    parts, n, steps, height, width, _ = framed.shape
    grid = framed.transpose(2, 0, 3, 1, 4, 5)
    return grid.reshape(steps, parts * height, n * width, 3)


def _frame(pixels: jax.Array, seen: int) -> jax.Array:
    """[P, N, T, H, W, 3] with a colored border on all sides."""
    steps = pixels.shape[2]
    is_seen = (jnp.arange(steps) < seen)[:, None]
    colors = jnp.where(is_seen, jnp.array(SEEN), jnp.array(PREDICTED))
    padding = [(0, 0)] * 3 + [(BORDER, BORDER)] * 2 + [(0, 0)]
    padded = jnp.pad(pixels, padding)
    inside = jnp.pad(jnp.ones(pixels.shape[3:5], bool), BORDER)[..., None]
    return jnp.where(inside, padded, colors[:, None, None, :].astype(jnp.uint8))


def _to_rgb(x: jax.Array) -> jax.Array:
    channels = x.shape[-1]
    return x[..., :3] if channels >= 3 else jnp.repeat(x[..., :1], 3, -1)
