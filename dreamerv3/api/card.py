"""The card of a bundle: README.md, with metadata for the hub above it."""

import csv
import io
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elements
import numpy as np
from ruamel.yaml import YAML

from embodied.envs import registry
from embodied.logging import read_records, read_scores

from .. import module_options
from .foreign import PLACES
from .origin import Origin

__all__ = ['Scores', 'write_card']

BINS = 200  # rows of scores.csv at most
FINAL_EPISODES = 100  # that the card's training score is the mean of
PROVENANCE = 'provenance.jsonl'
PROGRAMS = ('dreamer', '__main__.py')  # the command, and python -m dreamerv3
PLACE = re.compile(r'(^|[=:])[/~]')  # in an argument of a command line

CARD = """\
---
{metadata}---

# {task}, {size} parameters

A DreamerV3 agent, trained for {step:,} environment steps on `{task}`{command}

{scores}

| observation | |
|---|---|
{observations}

| action | |
|---|---|
{actions}

```python
import dreamerv3

agent = dreamerv3.load({name!r})
action, state = agent.act(obs)
```

`dreamer eval {quoted}` plays with it, `dreamer import {quoted} --logdir NEW` trains it
further.{code} Options are in `config.yaml`, the scores of the training in `scores.csv`.
"""

CODE = """ The task is code, which is not in this folder: both need `--trust` to import
what it names, or another `--task`."""
NO_CODE = ' Loading it runs no code.'
MODULE = """ The agent is code, too, `{module}`, which is not in this folder: where that
module can be imported, `--trust` (`trust=True` in Python) lets it be loaded."""


class Scores(NamedTuple):
    """What is known about the scores of a run."""

    episodes: list[dict[str, Any]]  # of training
    evaluations: list[dict[str, Any]]

    @classmethod
    def of_run(cls, run: Path) -> 'Scores':
        episodes = [x for x in read_scores(run) if not x['eval']]
        return cls(episodes, read_records(run / 'eval.jsonl'))

    def table(self) -> str:
        """CSV of bins of equal numbers of episodes, at the step of their last one."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(['step', 'episodes', 'mean', 'min', 'max'])
        count = len(self.episodes)
        for part in np.array_split(np.arange(count), min(BINS, count) or 1):
            if len(part):
                scores = [self.episodes[i]['score'] for i in part]
                step = max(self.episodes[i]['step'] for i in part)
                figures = np.mean(scores), min(scores), max(scores)
                writer.writerow([step, len(part), *(f'{x:.6g}' for x in figures)])
        return text.getvalue()

    def rows(self) -> list[tuple[str, float, float, int]]:
        """What, mean, standard deviation and number of episodes; the best known
        figure last."""
        rows = []
        if self.episodes:
            last = [x['score'] for x in self.episodes[-FINAL_EPISODES:]]
            row = (float(np.mean(last)), float(np.std(last)), len(last))
            rows.append(('last training episodes', *row))
        for x in self.evaluations:
            how = 'greedy' if x['greedy'] else 'sampled'
            what = f'evaluation at step {x["step"]:,}, {how}'
            rows.append((what, x['mean'], x['std'], x['episodes']))
        return rows


def write_card(
    origin: Origin,
    weights: Mapping[str, np.ndarray],
    step: int,
    name: str,
    run: Path,
    license_id: str | None = None,
) -> str:
    """name: by which `dreamerv3.load` and the commands find the bundle. run: that it
    comes from."""
    task = origin.config.task
    params = sum(v.size for k, v in weights.items() if k.startswith('params.'))
    rows = Scores.of_run(run).rows()
    command = _command(run)
    return CARD.format(
        metadata=_metadata(task, name, rows, license_id),
        task=task,
        size=f'{params:,}',
        step=step,
        command=f':\n\n```\n{command}\n```' if command else '.',
        scores=_summary(rows),
        observations=_spaces(origin.obs_space),
        actions=_spaces(origin.act_space),
        name=name,
        quoted=shlex.quote(name),
        code=_code(origin.config),
    )


def _code(config: elements.Config) -> str:
    """What to say of code that the options name."""
    module = config.flat.get(module_options.MODULE, '')
    task = CODE if registry.names_code(config.task) else ''
    return task + (MODULE.format(module=module) if module else NO_CODE)


def _metadata(
    task: str, name: str, rows: Sequence[tuple[str, float, float, int]], license_id: Any
) -> str:
    """YAML as the hub reads it, with the score by which it lists an agent."""
    about: dict[str, Any] = {
        'library_name': 'dreamer-parallel',
        'pipeline_tag': 'reinforcement-learning',
        'tags': ['reinforcement-learning', 'dreamerv3', 'world-model', task],
    }
    if license_id:
        about['license'] = license_id
    if rows:
        what, mean, std, _ = rows[-1]
        kind = 'reinforcement-learning'
        metric = {
            'type': 'mean_reward',
            'value': f'{mean:.4g} +/- {std:.4g}',
            'name': f'mean score, {what}',
            'verified': False,
        }
        result = {
            'task': {'type': kind, 'name': kind},
            'dataset': {'name': task, 'type': task},
            'metrics': [metric],
        }
        title = name.removeprefix('hf:').rpartition('/')[2]
        about['model-index'] = [{'name': title, 'results': [result]}]
    text = io.StringIO()
    yaml = YAML(typ='safe')
    yaml.default_flow_style = False
    yaml.dump(about, text)
    return text.getvalue()


def _summary(rows: Sequence[tuple[str, float, float, int]]) -> str:
    if not rows:
        return 'No scores are known.'
    lines = ['| scores | mean | std | episodes |', '|---|---|---|---|']
    for what, mean, std, episodes in rows:
        lines.append(f'| {what} | {mean:.4g} | {std:.4g} | {episodes} |')
    return '\n'.join(lines)


def _spaces(spaces: dict[str, Any]) -> str:
    return '\n'.join(
        f'| `{name}` | {space.dtype.name} {list(space.shape)} |'
        for name, space in spaces.items()
    )


def _command(run: Path) -> str:
    """The command line that trained the run, without places; '' if it was none."""
    starts = read_records(run / PROVENANCE)
    program, *args = starts[0].get('command') or [''] if starts else ['']
    if Path(program).name not in PROGRAMS:
        return ''  # It was started in Python.
    kept, named = [], False
    for arg in args:
        if arg.startswith('--'):
            name, equals, _ = arg[2:].partition('=')
            named = bool(PLACES.fullmatch(name))
            if not named:
                kept.append(arg)
            named = named and not equals
        elif not named:
            kept.append(arg)
    kept = ['...' if PLACE.search(x) else x for x in kept]
    return shlex.join([PROGRAMS[0], *kept])
