"""`dreamer export`: a trained agent as a bundle, or its policy as a file of its own."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from embodied.core.checkpoint import load_part_and_step
from embodied.core.errors import ConfigError

from ..api import bundle, foreign, hub
from ..api.card import Scores, write_card
from ..api.origin import Origin

__all__ = ['main']

BUNDLE, STABLEHLO, ONNX = 'bundle', 'stablehlo', 'onnx'

DESCRIPTION = """\
Writes a trained agent into the folder OUT, as a bundle: weights as safetensors,
options, scores and a card. LOGDIR is a run or one of its checkpoints. `dreamer import`,
`dreamer eval` and dreamerv3.load read such folders, and nothing in them runs code while
they are loaded. A task that names code needs --trust where it is played. --push uploads
the bundle to the hub of Hugging Face. --format stablehlo or onnx writes the policy as
one file that plays without this package, and a script that does so. LOGDIR may also be
a bundle or hf:owner/name then, and options of the run can be changed, for example:
--jax.compute_dtype float32."""


def main(argv: Sequence[str]) -> int:
    parser = _parser()
    args, flags = foreign.parse(parser, argv)
    out = Path(args.out).expanduser()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f'{out} is not empty. Choose a new folder.')
    _check(args)
    if args.format != BUNDLE:
        from ..portable.policy_folder import export_policy  # JAX

        how = (args.trust, not args.no_env, args.batch)
        print(export_policy(args.logdir, out, args.format, flags, *how))
        return 0
    if flags:
        parser.error(f'unrecognized arguments: {" ".join(flags)}')
    if args.push is not None:
        hub.check_push(args.push, args.private)
    print(_export_bundle(args, out))
    if args.push is not None:
        print(hub.push(out, args.push, args.private))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises if an option does not go with the format."""
    if args.batch < 1:
        raise ConfigError(f'--batch {args.batch} must be at least 1.')
    if args.batch > 1 and args.format != ONNX:
        raise ConfigError(
            '--batch is for --format onnx: the others take any number of rows.'
        )
    if args.format == BUNDLE and args.no_env:
        raise ConfigError('--no-env is for policies: a bundle makes no environment.')
    pushed = args.push is not None
    if args.format != BUNDLE and (pushed or args.private or args.license):
        raise ConfigError(
            '--push, --private and --license are for bundles. Push the bundle: those '
            'who have it can export its policy.'
        )
    if args.private and not pushed:
        raise ConfigError('--private is for the repository of --push OWNER/NAME.')


def _export_bundle(args: argparse.Namespace, out: Path) -> str:
    """Writes the bundle; returns what to say about it."""
    run = Path(args.logdir).expanduser()
    if bundle.is_bundle(run):
        raise ConfigError(
            f'{run} is a bundle already. Copy it, or push it with `hf upload '
            f'owner/name {run}`.'
        )
    data, step = load_part_and_step(run, 'agent', args.trust)
    origin = Origin.of_checkpoint(data, run)
    weights = {k: v for k, v in data['state'].items() if re.match(bundle.WEIGHTS, k)}
    origin = bundle.write(out, origin, weights, step)
    name = f'{hub.PREFIX}{args.push}' if args.push else out.name
    card = write_card(origin, weights, step, name, run, args.license)
    (out / bundle.SCORES).write_text(Scores.of_run(run).table(), newline='')
    (out / bundle.CARD).write_text(card)
    params = sum(v.size for k, v in weights.items() if k.startswith('params.'))
    return f'{out}: {params:,} parameters of step {step:,}'


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer export', description=DESCRIPTION)
    add = parser.add_argument
    add('logdir')
    add('out')
    add(
        '--format',
        choices=(BUNDLE, STABLEHLO, ONNX),
        default=BUNDLE,
        help=f'a bundle, for this package, or the policy alone ({BUNDLE})',
    )
    add('--push', metavar='OWNER/NAME', help='upload the bundle to this repository')
    add('--private', action='store_true', help='make a new repository private')
    add('--license', help='of the bundle, as the hub names it: mit, apache-2.0, ...')
    add('--batch', type=int, default=1, help='rows that ONNX takes at once (1)')
    add(
        '--no-env',
        action='store_true',
        help='do not make the environment to find out its units: actions of the '
        'policy stay in -1..1',
    )
    return parser
