"""`dreamer import`: starts a run with the weights of a bundle or of the reference."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied.core.checkpoint import Checkpoint
from embodied.core.errors import CheckpointError

from .. import config as config_lib
from .. import factories
from ..api import bundle, foreign, hub
from ..run_folder import expand

__all__ = ['main', 'merge']

FOLDER = 'imported'  # in the run's, with the checkpoint that it starts from
LISTED = 5  # names in a message

DESCRIPTION = """\
Trains an agent that starts with imported weights. SOURCE is a bundle of `dreamer
export`, or one on the hub, hf:owner/name, whose options are taken over, or a checkpoint
of the reference implementation, for which size and task must be given. All options of
`dreamer train` can follow, for example: --logdir ~/logdir/again --run.steps 1e6. The
same command continues the run."""


class Merged(NamedTuple):
    """The state of an agent with imported weights, and what became of their names."""

    state: dict[str, np.ndarray]
    taken: list[str]
    missing: list[str]  # in the source
    different: list[str]  # in shape, with both shapes


def main(argv: Sequence[str]) -> int:
    from .. import main as command_line

    args, flags = foreign.parse(_parser(), argv)
    source = hub.locate(args.source)
    config = _options(source, flags, args.trust, args.source)
    config = config.update(logdir=expand(config.logdir, config.task))
    folder = Path(config.logdir) / FOLDER
    if args.check or not Checkpoint(folder).exists():
        agent = factories.make_agent(config)
        merged = merge(agent, _read(source, agent))
        if not config.quiet:
            print(_describe(merged, args.source))
        if args.check:
            return 0
        agent.load({'state': merged.state}, regex='.*')
        checkpoint = Checkpoint(folder)
        checkpoint.add('agent', agent)
        checkpoint.save()
        checkpoint.wait()
    options = {'run.from_checkpoint': str(folder), 'run.from_checkpoint_regex': '.*'}
    command_line.run(config.update(options))
    return 0


def merge(agent: Any, weights: Mapping[str, np.ndarray]) -> Merged:
    """The agent's state with those weights that fit; raises if none does."""
    state = dict(agent.state)
    merged = Merged(state, [], [], [])
    for name, value in state.items():
        if name.startswith('opt.'):
            continue
        if name not in weights:
            merged.missing.append(name)
        elif weights[name].shape != value.shape:
            shapes = f'{weights[name].shape} there, {value.shape} here'
            merged.different.append(f'{name} ({shapes})')
        else:
            state[name] = weights[name].astype(value.dtype)
            merged.taken.append(name)
    if not merged.taken:
        raise CheckpointError(
            'No parameter fits this agent. Give the size and the task that the '
            f'weights were trained with. {_list("Different", merged.different)}'
        )
    return merged


def _options(
    source: Path, flags: Sequence[str], trust: bool, named: str
) -> elements.Config:
    """Options of a bundle, or else the defaults, changed by the user's flags.

    named: the source in the user's words. Raises if it is of an unknown kind, or names
    code and is not trusted.
    """
    if bundle.is_bundle(source):
        came = bundle.read(source)[0].config
        taken = foreign.take(flags, came, False, trust, named)
        taken.check_task()
        return taken.config
    from ..api import reference_names as reference  # JAX

    if reference.is_reference(source):
        return config_lib.resolve(flags)[0]
    raise CheckpointError(
        f'{source} is neither a bundle of `dreamer export` nor a checkpoint of the '
        'reference implementation. A checkpoint of ours is taken over with '
        '--run.from_checkpoint.'
    )


def _read(source: Path, agent: Any) -> dict[str, np.ndarray]:
    """Weights by the names of the agent's state."""
    if bundle.is_bundle(source):
        return bundle.read(source)[1]
    from ..api import reference_names as reference  # JAX

    found = reference.read(source)
    weights, nets = {}, agent.params
    for name in agent.state:
        theirs = reference.reference_name(name.removeprefix('params.'), nets)
        if theirs in found:
            weights[name] = found[theirs]
    return weights


def _describe(merged: Merged, source: str) -> str:
    lines = [f'{len(merged.taken)} parameters taken from {source}.']
    lines += [_list('Left as they were', merged.missing)] if merged.missing else []
    lines += [_list('Of another shape', merged.different)] if merged.different else []
    return '\n'.join(lines)


def _list(title: str, names: Sequence[str]) -> str:
    more = f' and {len(names) - LISTED} more' if len(names) > LISTED else ''
    return f'{title}: {", ".join(names[:LISTED])}{more}.'


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer import', description=DESCRIPTION)
    parser.add_argument('source')
    parser.add_argument(
        '--check', action='store_true', help='only say which weights would fit'
    )
    return parser
