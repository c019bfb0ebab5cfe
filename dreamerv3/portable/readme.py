"""README.md beside an exported policy: what the loop of a robot has to do."""

from collections.abc import Mapping
from typing import Any

__all__ = ['write_readme']

TEXT = """\
# Policy for `{task}`, step {step:,}

`policy.zip` holds a trained DreamerV3 policy, `player.py` is a readable script that
acts with it. Neither needs the package that trained it:

```
pip install {packages}
```

```python
from player import Policy

policy = Policy('policy.zip')
action, state = policy.act(obs)  # an episode begins
action, state = policy.act(obs, state)  # and goes on
action, state = policy.act(obs, state, greedy=True)  # the most likely action
```

The state belongs to one episode of one environment: start without it, or give
`obs['is_first'] = True`, when an episode begins. {running}

## Observations

`obs` is a dict with these keys; others are ignored. Values go in as they are here:
one-hot encoding, scaling of pixels and compression of large numbers are part of the
policy.

| key | dtype | shape | range |
|---|---|---|---|
{observations}

{changes}

## Actions

`policy.act` returns a dict with these keys. {units}

| key | dtype | shape | values |
|---|---|---|---|
{actions}

{spaces}{settings}## What it was made with

Computed in {dtype}. {versions}.
All of this is in `policy.json` inside of `policy.zip`, and the options of the training
in `config.yaml`: `unzip -p policy.zip policy.json`.
"""

RUNNING = {
    'stablehlo': """The first call compiles,
which takes seconds. `obs` may be one observation or a batch with one more axis in front
of every key. It runs on {platforms}; `pip install 'jax[cuda]'` brings the latter.""",
    'onnx': """It takes {batch} at once:
{rows}. What is random is an
input, drawn by NumPy: other numbers than those of the package, of the same kind.""",
}
PACKAGES = {'stablehlo': 'numpy jax flatbuffers', 'onnx': 'numpy onnxruntime'}

KNOWN = """They are in the units
of the environment: continuous values are clipped to -1..1 and then scaled to the range
below. `policy.step` returns them as the agent gives them, before that."""
UNKNOWN = """The environment was
not there when this was exported, so its own units are **not known**: continuous values
are in -1..1 and have to be scaled by you, integers count from 0."""

SETTINGS = """\
## How the environment was set up

The policy was trained with these settings of the environment. A loop that differs, in
steps per action for example, is another task.

| setting | value | meaning |
|---|---|---|
{rows}

"""

UNCHANGED = 'The environment gave them in this form.'
NOT_KNOWN = """What wrappers did to the observations of the environment is **not
known**: it was not there when this was exported."""


def write_readme(about: Mapping[str, Any]) -> str:
    """about: of `describe_policy`."""
    known = all(x['environment'] for x in about['actions'].values())
    return TEXT.format(
        task=about['task'],
        step=about['step'],
        packages=PACKAGES[about['format']],
        running=_running(about),
        observations='\n'.join(_row(*x) for x in about['observations'].items()),
        changes=_changes(about['observations']) if known else NOT_KNOWN,
        units=KNOWN if known else UNKNOWN,
        actions='\n'.join(_action(*x) for x in about['actions'].items()),
        spaces=_spaces(about['environment']['spaces']),
        settings=_settings(about['environment']['settings']),
        dtype=about['compute_dtype'],
        versions=', '.join(f'{k} {v}' for k, v in about['versions'].items()),
    )


def _running(about: Mapping[str, Any]) -> str:
    batch = about.get('batch', 1)
    return RUNNING[about['format']].format(
        platforms=' and '.join(about.get('platforms', ())),
        batch='one observation' if batch == 1 else f'{batch} observations',
        rows='`--batch N` exports it for a batch of N'
        if batch == 1
        else 'an axis of that size comes in front of every key',
    )


def _row(key: str, space: Mapping[str, Any]) -> str:
    return f'| `{key}` | {space["dtype"]} | {space["shape"]} | {_range(space)} |'


def _range(space: Mapping[str, Any]) -> str:
    if space['dtype'] == 'bool':
        return 'true or false'
    low, high = space['low'], space['high']
    if space['dtype'].startswith('float'):
        return 'any' if None in (*low, *high) else f'{_one(low)} to {_one(high)}'
    if space['dtype'] == 'uint8' and len(space['shape']) == 3:
        return '0 to 255, height x width x channels'
    return f'{_one(low)} to {_one([x - 1 for x in high])}'


def _changes(observations: Mapping[str, Any]) -> str:
    """What happened between the environment and the policy."""
    lines = []
    for key, space in observations.items():
        given = space['environment']
        if given['changes']:
            steps = '; then '.join(given['changes'])
            form = f'{given["dtype"]} {given["shape"]}'
            lines.append(f'- `{key}`: the environment gives {form}, {steps}.')
    if not lines:
        return UNCHANGED
    return '\n'.join(['In training these were changed first. Do the same:', '', *lines])


def _action(key: str, space: Mapping[str, Any]) -> str:
    there = space['environment']
    shown = there or space
    if 'low' in shown and shown['dtype'].startswith('float'):
        values = f'{_one(shown["low"])} to {_one(shown["high"])}'
    elif shown['dtype'] == 'bool':
        values = 'true or false'
    else:
        start = shown.get('start', 0)
        count = f'{_one(space["high"])} values'
        values = f'{count}, from {_one(start)} on'
    return f'| `{key}` | {shown["dtype"]} | {shown["shape"]} | {values} |'


def _one(values: Any) -> str:
    """A single number for a list of equal ones."""
    flat = [values]
    while any(isinstance(x, list) for x in flat):
        flat = [y for x in flat for y in (x if isinstance(x, list) else [x])]
    numbers = [f'{x:g}' for x in flat]
    return numbers[0] if len(set(numbers)) == 1 else f'[{", ".join(numbers)}]'


def _spaces(spaces: Mapping[str, str]) -> str:
    if not spaces:
        return ''
    return (
        'The spaces of the Gymnasium environment: '
        f'observations `{spaces["observation_space"]}`, actions '
        f'`{spaces["action_space"]}`. Parts of dicts and tuples have keys joined by '
        '`/`, parts of tuples are numbered, as in `action/0`.\n\n'
    )


def _settings(settings: Any) -> str:
    """What the environment did by itself."""
    if not settings:
        return ''
    rows = '\n'.join(
        f'| `{x["name"]}` | {x["value"]} | {x["meaning"]} |' for x in settings
    )
    return SETTINGS.format(rows=rows)
