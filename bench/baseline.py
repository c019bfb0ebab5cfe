"""Baseline: figures of several benches in one file, and what a change does to them.

    python bench/baseline.py measure FILE [BENCH ...]     this checkout, into one file
    python bench/baseline.py compare BEFORE AFTER         two such files
    python bench/baseline.py pairs CHECKOUT [BENCH ...]   another checkout and this one,
                                                          taking turns, and compared

`compare` prints one JSON line per figure: `ratio` is above 1 where the second file is
better, `interval` goes from the worst to the best round. A figure is `worse` if its
whole interval lies below 0.95: machines are noisy. Exits with 1 if one is.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
COMMANDS = {
    'runtime': ['runtime.py', 'steps', 'fetch'],
    'transport': ['transport.py'],
    'replay': ['replay.py', '--quick'],
    'dispatch': ['dispatch.py'],
}
ROUNDS = 5
TOLERANCE = 0.95
# Numbers that say which figure it is, and numbers that are no result.
NAMING = ('envs', 'envs_per_worker', 'rows', 'arrays')
IGNORED = ('bar', 'goal', 'yardstick', 'ok', 'machine', 'cores')
SMALLER_IS_BETTER = (
    '_ms',
    'ms_',
    'seconds_until',
    'memory',
    'core_us',
    'idle',
    'share',
)
DURATIONS = (' seconds', ' ms', ' us')  # units

Round: TypeAlias = dict[str, float]  # figures by name


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    commands = parser.add_subparsers(dest='command', required=True)
    measure = commands.add_parser('measure')
    measure.add_argument('file', type=Path)
    pairs = commands.add_parser('pairs')
    pairs.add_argument('checkout', type=Path)
    for command in (measure, pairs):
        command.add_argument('benches', nargs='*', metavar='|'.join(COMMANDS))
        command.add_argument('--rounds', type=int, default=ROUNDS)
    compare = commands.add_parser('compare')
    compare.add_argument('before', type=Path)
    compare.add_argument('after', type=Path)
    options = parser.parse_args(argv)
    unknown = set(getattr(options, 'benches', ())) - set(COMMANDS)
    if unknown:
        parser.error(f'unknown benches {sorted(unknown)}, there are {list(COMMANDS)}')
    match options.command:
        case 'measure':
            names = options.benches or list(COMMANDS)
            rounds = [run(HERE.parent, names) for _ in range(options.rounds)]
            options.file.write_text(json.dumps(rounds, indent=2) + '\n')
            return 0
        case 'pairs':
            return show(*take_turns(options))
        case _:
            files = options.before, options.after
            return show(*(json.loads(file.read_text()) for file in files))


def take_turns(options: argparse.Namespace) -> tuple[list[Round], list[Round]]:
    """Rounds of the other checkout and of this one, minute by minute."""
    names = options.benches or list(COMMANDS)
    before, after = [], []
    for _ in range(options.rounds):
        before.append(run(options.checkout.resolve(), names))
        after.append(run(HERE.parent, names))
    return before, after


def run(checkout: Path, names: Sequence[str]) -> Round:
    """One round of benches with the code of a checkout."""
    found: Round = {}
    for name in names:
        script, *flags = COMMANDS[name]
        done = subprocess.run(
            [sys.executable, str(checkout / 'bench' / script), *flags],
            env={**os.environ, 'PYTHONPATH': str(checkout)},
            cwd=checkout,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for line in done.stdout.splitlines():
            if line.startswith('{'):  # Launchers print messages of their own.
                found.update(figures(json.loads(line)))
    return found


def figures(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Results in one line of a bench, by names that say what they are of."""
    words = [str(line[key]) for key in ('bench', 'what') if key in line]
    words += [f'{key}={line[key]}' for key in NAMING if key in line]
    for key, value in line.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and key not in (*NAMING, *IGNORED):
            name = line.get('unit', key) if key == 'value' else key
            yield ' '.join([*words, name]), float(value)


def show(before: list[Round], after: list[Round]) -> int:
    """Prints how the figures have changed; 1 if one has become worse for sure."""
    worse = 0
    for name in before[0]:
        ratios = [
            ratio(name, old[name], new[name])
            for old, new in zip(before, after, strict=True)
            if old.get(name) and new.get(name)
        ]
        if not ratios:
            continue
        is_worse = max(ratios) < TOLERANCE
        worse += is_worse
        line = {
            'figure': name,
            'before': statistics.median(x[name] for x in before if name in x),
            'after': statistics.median(x[name] for x in after if name in x),
            'ratio': round(statistics.median(ratios), 3),
            'interval': [round(min(ratios), 3), round(max(ratios), 3)],
            **({'worse': True} if is_worse else {}),
        }
        print(json.dumps(line), flush=True)
    return int(worse > 0)


def ratio(name: str, old: float, new: float) -> float:
    """Above 1 where the new value is better."""
    smaller = any(part in name for part in SMALLER_IS_BETTER)
    smaller = smaller or name.endswith(DURATIONS)
    return old / new if smaller else new / old


if __name__ == '__main__':
    sys.exit(main())
