"""`dreamer eval`: plays with a trained agent and writes scores and films down."""

import argparse
import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodied.core.base import Batch
from embodied.core.outside import shown
from embodied.logging.jsonl import EvalFile

from .. import factories
from ..api import foreign, hub
from ..api.evaluate import ENVS, EPISODES, play

__all__ = ['main']

VIDEOS = 3

DESCRIPTION = """\
Plays with a trained agent and prints its scores. FOLDER is a run, one of its
checkpoints, an exported bundle, or one on the hub: hf:owner/name. Options of the run
can be changed as for training, for example: --seed 1 --jax.platform cpu. Code that a
bundle or a run of others names is not run without --trust."""


def main(argv: Sequence[str]) -> int:
    args, flags = foreign.parse(_parser(), argv)
    from ..api.loaded import load_player  # JAX

    agent = load_player(args.folder, flags, args.trust)
    config = agent.config
    make_env = functools.partial(factories.make_env, config, mode='eval', num=1)
    greedy = args.greedy or config.agent.eval_greedy
    result = play(
        agent,
        make_env,
        args.episodes,
        greedy,
        args.video,
        args.envs,
        processes=config.run.env_processes and not config.run.debug,
    )
    summary = result.summary()
    how = 'greedy' if greedy else 'sampled'
    print(
        f'{args.episodes} episodes of {shown(config.task)} with the agent of step '
        f'{agent.step:,}, actions {how}',
        '  '.join(
            f'{name} {summary[name]:.4g}' for name in ('mean', 'std', 'min', 'max')
        ),
        sep='\n',
    )
    out = hub.results_folder(args.out or args.folder)
    with contextlib.closing(EvalFile(out)) as file:
        scores = result.scores.tolist()
        file.add(agent.step, {**summary, 'greedy': greedy, 'scores': scores})
    for path in _write_films(out, agent.step, result.films, config.logger):
        print(path)
    return 0


def _write_films(
    folder: Path, step: int, films: Sequence[Batch], options: Any
) -> list[Path]:
    from embodied.logging import pictures
    from embodied.logging.video import video_path

    paths = []
    for number, film in enumerate(films):
        for key, video in film.items():
            path = video_path(folder, f'eval_{number}/{key}', step, options.video)
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures.write_video(path, pictures.frames(video), options.fps)
            paths.append(path)
    return paths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer eval', description=DESCRIPTION)
    add = parser.add_argument
    add('folder')
    add('--episodes', type=int, default=EPISODES, help=f'how many ({EPISODES})')
    add('--greedy', action='store_true', help='most likely actions, not samples')
    add('--envs', type=int, default=ENVS, help=f'at the same time ({ENVS})')
    add(
        '--video',
        type=int,
        nargs='?',
        const=VIDEOS,
        default=0,
        help=f'save videos of the first episodes, {VIDEOS} if no number is given',
    )
    add('--out', help='folder for scores and videos instead of FOLDER')
    return parser
