"""Tools on replay folders: `dreamer replay info|check|prune|export LOGDIR`."""

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embodied.core.errors import ConfigError, DreamerError, ReplayError
from embodied.core.outside import shown
from embodied.envs.spaces import RESERVED
from embodied.replay import Replay
from embodied.replay.recovery.folder import find_folder, local_path
from embodied.replay.storage.allocator import GIGABYTE
from embodied.replay.tools.inspection import Inspection

__all__ = ['main']


def main(argv: Sequence[str]) -> int:
    """Runs one tool; returns the exit status."""
    args = _parser().parse_args(argv)
    logging.basicConfig(format='%(message)s')
    try:
        return args.tool(args)
    except DreamerError as error:
        print(shown(error), file=sys.stderr)
        return 1


def info(args: argparse.Namespace) -> int:
    """Prints sizes, streams, episodes and the schema."""
    look = Inspection(args.logdir)
    lengths = [len(positions) for _, positions in look.episodes()]
    workers = {worker for worker, _ in look.streams()}
    size = sum(segment.spec.nbytes for segment in look.segments)
    print(f'folder    {shown(look.path)}')
    print(f'size      {size / GIGABYTE:.3f} GB in {len(look.segments)} segments')
    print(f'steps     {look.steps}')
    print(f'streams   {len(workers)}')
    if lengths:
        print(f'episodes  {len(lengths)}, {np.mean(lengths):.1f} steps on average')
    print(f'bytes     {look.schema.row_bytes} per step')
    for column in look.schema.columns.values():
        print(shown(f'  {column.name}: {column}', keep=''))
    return 0


def check(args: argparse.Namespace) -> int:
    """Prints what is wrong; the status is 1 if anything is."""
    look = Inspection(args.logdir)
    problems = look.problems()
    for line in problems:
        print(shown(line, keep=''))
    print(
        f'{len(look.segments)} segments, {look.steps} steps, '
        f'{look.torn()} torn latents, {look.unsealed()} full chunks without checksum, '
        f'{len(problems)} problems.'
    )
    return 1 if problems else 0


def prune(args: argparse.Namespace) -> int:
    """Deletes the oldest steps of a replay that no run is using."""
    if args.steps is None and args.gb is None:
        raise ReplayError('Say how much to keep: --steps, --gb or both.')
    replay = Replay(1, args.steps, find_folder(local_path(args.logdir)), sync_every=0)
    if args.gb is not None:
        replay.shrink(args.gb)
    stats = replay.stats()
    print(f'{stats["steps"]} steps in {stats["gigabytes"]:.3f} GB are left.')
    replay.close()
    return 0


def export(args: argparse.Namespace) -> int:
    """Writes the episodes, for `dreamer offline` and other programs."""
    return _FORMATS[args.format](args)


def _export_npz(args: argparse.Namespace) -> int:
    """Writes each episode to a compressed npz file."""
    from embodied.datasets.replay_files import open_rows

    look = open_rows(local_path(args.logdir), args.trust)
    target = Path(args.target).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    count = 0
    for worker, positions in look.episodes():
        if count == args.episodes:
            break
        serial = int(look.serials(positions[:1])[0])
        name = f'stream{worker}-step{serial:08d}-length{len(positions)}.npz'
        values = look.values(positions, args.latents)
        np.savez_compressed(target / name, **values)  # type: ignore[arg-type]
        count += 1
    print(f'{count} episodes written to {target}.')
    return 0


def _export_minari(args: argparse.Namespace) -> int:
    """Writes the episodes as a Minari dataset."""
    from embodied import datasets
    from embodied.datasets.minari_files import PREFIX, write_minari

    from .. import offline_data

    if args.latents:
        raise ConfigError(
            'Minari has no place for states of the model: leave --latents away.'
        )
    source = datasets.ReplayFiles(args.logdir, local_path(args.logdir), args.trust)
    obs, act = offline_data.recorded_spaces(source, args.trust)
    names = [*obs, *act]
    episodes = itertools.islice(source.episodes(names), args.episodes)
    name = args.target.removeprefix(PREFIX)
    task = {k: x for k, x in obs.items() if k not in RESERVED}
    count = write_minari(name, episodes, task, act)
    print(f'{count} episodes written to the Minari dataset {name}.')
    return 0


_FORMATS = {'npz': _export_npz, 'minari': _export_minari}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer replay', description=__doc__)
    tools = parser.add_subparsers(required=True, metavar='info|check|prune|export')
    for tool in (info, check, prune, export):
        part = tools.add_parser(tool.__name__, help=tool.__doc__)
        part.add_argument('logdir', help='folder of a run or of a replay')
        part.set_defaults(tool=tool)
    part = tools.choices['prune']
    part.add_argument('--steps', type=_positive, help='steps to keep, at most')
    part.add_argument('--gb', type=float, help='gigabytes to keep, at most')
    part = tools.choices['export']
    part.add_argument('target', help='folder for the npz files, or id of the dataset')
    part.add_argument(
        '--format', choices=list(_FORMATS), default='npz', help='npz, or minari'
    )
    part.add_argument(
        '--trust', action='store_true', help='load an agent that others have saved'
    )
    part.add_argument('--episodes', type=_positive, help='how many; all by default')
    part.add_argument('--latents', action='store_true', help='also states of the model')
    return parser


def _positive(text: str) -> int:
    value = int(float(text))
    if value < 1:
        raise argparse.ArgumentTypeError('must be at least 1')
    return value
