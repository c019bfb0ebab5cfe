"""`dreamer export`: writes the agent of a run as a bundle, with scores and a card."""

import argparse
import csv
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elements
import numpy as np

from embodied.core.checkpoint import load_part_and_step
from embodied.core.errors import ConfigError
from embodied.envs import registry
from embodied.logging import read_records, read_scores

from .. import module_options
from ..api import bundle, foreign
from ..api.origin import Origin

__all__ = ['main']

BINS = 200  # rows of scores.csv at most
FINAL_EPISODES = 100  # that the card's training score is the mean of

DESCRIPTION = """\
Writes a trained agent into the folder OUT: weights as safetensors, options, scores and
a card. LOGDIR is a run or one of its checkpoints. `dreamer import`, `dreamer eval` and
dreamerv3.load read such folders, and nothing in them runs code while they are loaded. A
task that names code needs --trust where it is played."""

CARD = """\
# {task}, {size} parameters

A DreamerV3 agent, trained for {step:,} environment steps on `{task}`.

{scores}

| observation | |
|---|---|
{observations}

| action | |
|---|---|
{actions}

```python
import dreamerv3

agent = dreamerv3.load({path!r})
action, state = agent.act(obs)
```

`dreamer eval {quoted}` plays with it, `dreamer import {quoted} --logdir NEW` trains it
further.{code} Options are in `config.yaml`, the scores of the training in `scores.csv`.
"""

CODE = """ The task is code, which is not in this folder: both need `--trust` to import
what it names, or another `--task`."""
MODULE = """ The agent is code, too, `{module}`, which is not in this folder: where that
module can be imported, `--trust` (`trust=True` in Python) lets it be loaded."""


def main(argv: Sequence[str]) -> int:
    parser = _parser()
    args, unknown = foreign.parse(parser, argv)
    if unknown:
        parser.error(f'unrecognized arguments: {" ".join(unknown)}')
    run, out = Path(args.logdir).expanduser(), Path(args.out).expanduser()
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f'{out} is not empty. Choose a new folder.')
    data, step = load_part_and_step(run, 'agent', args.trust)
    origin = Origin.of_checkpoint(data, run)
    weights = {k: v for k, v in data['state'].items() if re.match(bundle.WEIGHTS, k)}
    origin = bundle.write(out, origin, weights, step)
    episodes = [x for x in read_scores(run) if not x['eval']]
    _write_scores(out / 'scores.csv', episodes)
    evaluations = read_records(run / 'eval.jsonl')
    params = sum(v.size for k, v in weights.items() if k.startswith('params.'))
    card = CARD.format(
        task=origin.config.task,
        size=f'{params:,}',
        step=step,
        scores=_summary(episodes, evaluations),
        observations=_spaces(origin.obs_space),
        actions=_spaces(origin.act_space),
        path=out.name,
        quoted=shlex.quote(out.name),
        code=_code(origin.config),
    )
    (out / 'README.md').write_text(card)
    print(f'{out}: {params:,} parameters of step {step:,}')
    return 0


def _code(config: elements.Config) -> str:
    """What to say of code that the options name."""
    module = config.flat.get(module_options.MODULE, '')
    code = CODE if registry.names_code(config.task) else ''
    return code + (MODULE.format(module=module) if module else '')


def _write_scores(path: Path, episodes: Sequence[dict[str, Any]]) -> None:
    """Bins of equal numbers of episodes, at the step of their last one."""
    with path.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['step', 'episodes', 'mean', 'min', 'max'])
        parts = np.array_split(np.arange(len(episodes)), min(BINS, len(episodes)) or 1)
        for part in parts:
            if len(part):
                scores = [episodes[i]['score'] for i in part]
                step = max(episodes[i]['step'] for i in part)
                figures = np.mean(scores), min(scores), max(scores)
                writer.writerow([step, len(part), *(f'{x:.6g}' for x in figures)])


def _summary(
    episodes: Sequence[dict[str, Any]], evaluations: Sequence[dict[str, Any]]
) -> str:
    lines = ['| scores | mean | std | episodes |', '|---|---|---|---|']
    if episodes:
        last = [x['score'] for x in episodes[-FINAL_EPISODES:]]
        figures = f'{np.mean(last):.4g} | {np.std(last):.4g} | {len(last)}'
        lines.append(f'| last training episodes | {figures} |')
    for x in evaluations:
        how = 'greedy' if x['greedy'] else 'sampled'
        figures = f'{x["mean"]:.4g} | {x["std"]:.4g} | {x["episodes"]}'
        lines.append(f'| evaluation at step {x["step"]:,}, {how} | {figures} |')
    return '\n'.join(lines) if len(lines) > 2 else 'No scores are known.'


def _spaces(spaces: dict[str, Any]) -> str:
    return '\n'.join(
        f'| `{name}` | {space.dtype.name} {list(space.shape)} |'
        for name, space in spaces.items()
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer export', description=DESCRIPTION)
    parser.add_argument('logdir')
    parser.add_argument('out')
    return parser
