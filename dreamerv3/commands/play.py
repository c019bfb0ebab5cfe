"""`dreamer play`: watch a trained agent play, in a window or as a video."""

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from embodied.core.base import Batch, Env
from embodied.core.errors import ConfigError
from embodied.envs.spaces import is_image
from embodied.envs.vector.one_member import one_member
from embodied.logging import pictures

from .. import factories
from ..api import foreign, hub

__all__ = ['episode_frames', 'main']

SIDE = 480  # pixels of the window, at least
FRAMES = 2000  # in a video

DESCRIPTION = """\
Shows a trained agent at play: in a window, episode after episode, or as a video if
there is no display or --out is given. FOLDER is a run, one of its checkpoints, an
exported bundle, or one on the hub: hf:owner/name. Options of the run can be changed,
for example: --logger.fps 30. Code that a bundle or a run of others names is not run
without --trust."""


def main(argv: Sequence[str]) -> int:
    args, flags = foreign.parse(_parser(), argv)
    from ..api.loaded import load_player  # JAX

    agent = load_player(args.folder, flags, args.trust)
    config = agent.config
    env = one_member(factories.make_env(config, 0, mode='eval', num=1))
    key = _image_key(env)
    play = functools.partial(episode_frames, agent, env, key, args.greedy)
    try:
        if args.out or not os.environ.get('DISPLAY'):
            out = Path(args.out or hub.results_folder(args.folder) / 'play.gif')
            if out.suffix[1:] not in pictures.VIDEO_FORMATS:
                raise ConfigError(f'{out} must end in .gif or .mp4.')
            _write(play(), out, config.logger.fps, args.episodes)
        else:
            _show(play(), f'{config.task}  {args.folder}', config.logger.fps)
    finally:
        env.close()
    return 0


def episode_frames(
    agent: Any, env: Env, key: str, greedy: bool = False
) -> Iterator[tuple[np.ndarray, float, bool]]:
    """Image, score so far and whether the episode is over, step by step, for ever."""
    while True:
        zeros = {k: np.zeros(x.shape, x.dtype) for k, x in agent.act_space.items()}
        obs: Batch = env.step({**zeros, 'reset': True})
        state, score = None, 0.0
        while True:
            score += float(obs['reward'])
            yield obs[key], score, bool(obs['is_last'])
            if obs['is_last']:
                break
            action, state = agent.act(obs, state, greedy)
            obs = env.step({**action, 'reset': False})


def _write(
    frames: Iterator[tuple[np.ndarray, float, bool]], out: Path, fps: int, episodes: int
) -> None:
    images, scores = [], []
    for image, score, is_last in frames:
        images.append(image)
        if is_last:
            scores.append(score)
        if len(scores) == episodes or len(images) == FRAMES:
            break
    out.parent.mkdir(parents=True, exist_ok=True)
    pictures.write_video(out, pictures.frames(np.stack(images)), fps)
    known = ', '.join(f'{score:.4g}' for score in scores) or 'not over yet'
    print(f'{out}  score {known}')


def _show(
    frames: Iterator[tuple[np.ndarray, float, bool]], title: str, fps: int
) -> None:
    """Plays until the window is closed."""
    advice = 'Write a video instead, with --out FILE.gif.'
    try:
        import tkinter

        from PIL import ImageTk
    except ImportError as error:
        raise ConfigError(f'This Python opens no windows: {error}. {advice}') from error
    try:
        window = tkinter.Tk()
    except tkinter.TclError as error:
        raise ConfigError(f'No window can be opened: {error}. {advice}') from error
    window.title(title)
    label = tkinter.Label(window, compound='top', font='TkFixedFont')
    label.pack()

    def next_frame() -> None:
        image, score, _ = next(frames)
        (picture,) = pictures.frames(image)
        factor = max(1, SIDE // min(picture.size))
        size = (picture.width * factor, picture.height * factor)
        photo = ImageTk.PhotoImage(picture.resize(size, Image.Resampling.NEAREST))
        label.configure(image=photo, text=f'score {score:.4g}')
        label.photo = photo  # type: ignore[attr-defined] # tkinter holds no reference
        window.after(round(1000 / fps), next_frame)

    window.bind('<Escape>', lambda event: window.destroy())
    next_frame()
    window.mainloop()


def _image_key(env: Env) -> str:
    keys = [name for name, space in env.obs_space.items() if is_image(space)]
    if not keys:
        raise ConfigError(
            'There is nothing to see: no observation of this task is an image. '
            '`dreamer eval` prints its scores.'
        )
    return keys[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer play', description=DESCRIPTION)
    add = parser.add_argument
    add('folder')
    add('--greedy', action='store_true', help='most likely actions, not samples')
    add('--out', help='write a .gif or .mp4 instead of opening a window')
    add('--episodes', type=int, default=1, help='in the video (1)')
    return parser
