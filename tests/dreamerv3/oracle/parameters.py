"""Parameters of the oracle: their names, shapes and fresh random values."""

import dataclasses
import math

import numpy as np

__all__ = ['Problem', 'count', 'flatten', 'nest', 'random_params', 'replace', 'shapes']

Shapes = dict[str, tuple[int, ...]]

KERNEL = 5  # side of every convolution kernel


@dataclasses.dataclass(frozen=True)
class Problem:
    """Sizes of the networks, and the keys of observations and actions."""

    deter: int = 16
    hidden: int = 12
    stoch: int = 4
    classes: int = 4
    units: int = 16
    depth: int = 2
    mults: tuple[int, ...] = (2, 3, 4, 4)
    blocks: int = 8
    bins: int = 41
    image: tuple[int, int, int] | None = (64, 64, 3)  # square, with channels
    vectors: dict[str, int] = dataclasses.field(default_factory=dict)  # width
    tokens: dict[str, int] = dataclasses.field(default_factory=dict)  # classes
    discrete: dict[str, int] = dataclasses.field(default_factory=dict)  # classes
    continuous: dict[str, int] = dataclasses.field(default_factory=dict)  # width

    @property
    def side(self) -> int:
        """Width of the smallest map."""
        assert self.image
        return self.image[0] // 2 ** len(self.mults)

    @property
    def channels(self) -> list[int]:
        """Channels after each stage of the encoder."""
        return [self.depth * x for x in self.mults]


def shapes(problem: Problem) -> Shapes:
    """Shape of every parameter by its dotted name, the slow value included."""
    x = problem
    table: Shapes = {}
    table |= {f'enc.{k}': v for k, v in _encoder(x).items()}
    table |= {f'dyn.{k}': v for k, v in _dynamics(x).items()}
    table |= {f'dec.{k}': v for k, v in _decoder(x).items()}
    table |= _head('rew', 1, x) | _linear('rew.head.logits', x.units, x.bins)
    table |= _head('con', 1, x) | _linear('con.head.logit', x.units, 1)
    table |= _head('pol', 3, x)
    for key, size in x.discrete.items():
        table |= _linear(f'pol.head.{key}.logits', x.units, size)
    for key, size in x.continuous.items():
        table |= _linear(f'pol.head.{key}.mean', x.units, size)
        table |= _linear(f'pol.head.{key}.stddev', x.units, size)
    for name in ('val', 'slowval'):
        table |= _head(name, 3, x) | _linear(f'{name}.head.logits', x.units, x.bins)
    return table


def count(problem: Problem) -> int:
    """Number of optimized parameters: all but the slow value."""
    table = shapes(problem).items()
    return sum(math.prod(v) for k, v in table if not k.startswith('slowval.'))


def random_params(rng, problem: Problem) -> dict[str, np.ndarray]:
    """Fresh float32 values by dotted name; nothing is zero, not even a bias."""
    values = {}
    for name, shape in shapes(problem).items():
        noise = rng.standard_normal(shape)
        if name.endswith('kernel'):
            value = noise / math.sqrt(math.prod(shape[:-1]))
        elif name.endswith('scale'):
            value = 1 + 0.1 * noise
        else:
            value = 0.1 * noise
        values[name] = value.astype(np.float32)
    return values


def nest(flat: dict) -> dict:
    """{'a.b': x} -> {'a': {'b': x}}, floats as float64."""
    tree: dict = {}
    for name, value in flat.items():
        *path, last = name.split('.')
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        floating = np.issubdtype(value.dtype, np.floating)
        node[last] = value.astype(np.float64) if floating else value
    return tree


def flatten(tree: dict) -> dict:
    """{'a': {'b': x}} -> {'a.b': x}."""
    flat: dict = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= {f'{key}.{k}': v for k, v in flatten(value).items()}
        else:
            flat[key] = value
    return flat


def replace(tree: dict, name: str, value) -> dict:
    """The same tree with another value at a dotted name."""
    head, _, rest = name.partition('.')
    return tree | {head: replace(tree[head], rest, value) if rest else value}


def _encoder(x) -> Shapes:
    table: Shapes = {}
    if x.vectors or x.tokens:
        size = sum(x.vectors.values()) + sum(x.tokens.values())
        for index in range(3):
            table |= _layer(f'mlp{index}', size if index == 0 else x.units, x.units)
    if x.image:
        sizes = [x.image[2], *x.channels]
        for index in range(len(x.mults)):
            table |= _conv(f'cnn{index}', sizes[index], sizes[index + 1])
            table[f'cnn{index}norm.scale'] = (sizes[index + 1],)
    return table


def _dynamics(x) -> Shapes:
    stoch = x.stoch * x.classes
    action = sum(x.discrete.values()) + sum(x.continuous.values())
    tokens = x.units if x.vectors or x.tokens else 0
    tokens += x.side**2 * x.channels[-1] if x.image else 0
    table: Shapes = {}
    for index, size in enumerate((x.deter, stoch, action)):
        table |= _layer(f'dynin{index}', size, x.hidden)
    table |= _block('dynhid0', x.blocks, x.deter + x.blocks * 3 * x.hidden, x.deter)
    table['dynhid0norm.scale'] = (x.deter,)
    table |= _block('dyngru', x.blocks, x.deter, 3 * x.deter)
    table |= _layer('obs0', x.deter + tokens, x.hidden)
    table |= _linear('obslogit', x.hidden, stoch)
    table |= _layer('prior0', x.deter, x.hidden) | _layer('prior1', x.hidden, x.hidden)
    return table | _linear('priorlogit', x.hidden, stoch)


def _decoder(x) -> Shapes:
    stoch = x.stoch * x.classes
    table: Shapes = {}
    if x.vectors or x.tokens:
        table |= _mlp('mlp', 3, stoch + x.deter, x.units)
        for key, size in x.vectors.items():
            table |= _linear(f'vec.{key}.pred', x.units, size)
        for key, size in x.tokens.items():
            table |= _linear(f'vec.{key}.logits', x.units, size)
    if x.image:
        size = x.side**2 * x.channels[-1]
        table |= _block('sp0', x.blocks, x.deter, size)
        table |= _layer('sp1', stoch, 2 * x.units) | _linear('sp2', 2 * x.units, size)
        table['spnorm.scale'] = (x.channels[-1],)
        for index in range(len(x.mults) - 1):
            table |= _conv(f'conv{index}', x.channels[index + 1], x.channels[index])
            table[f'conv{index}norm.scale'] = (x.channels[index],)
        table |= _conv('imgout', x.channels[0], x.image[2])
    return table


def _head(name, layers, x) -> Shapes:
    return _mlp(f'{name}.mlp', layers, x.deter + x.stoch * x.classes, x.units)


def _mlp(name, layers, size, units) -> Shapes:
    table: Shapes = {}
    for index in range(layers):
        table |= _linear(f'{name}.linear{index}', units if index else size, units)
        table[f'{name}.norm{index}.scale'] = (units,)
    return table


def _layer(name, size, units) -> Shapes:
    return _linear(name, size, units) | {f'{name}norm.scale': (units,)}


def _linear(name, size, units) -> Shapes:
    return {f'{name}.kernel': (size, units), f'{name}.bias': (units,)}


def _block(name, blocks, size, units) -> Shapes:
    kernel = (blocks, size // blocks, units // blocks)
    return {f'{name}.kernel': kernel, f'{name}.bias': (units,)}


def _conv(name, size, units) -> Shapes:
    kernel = (KERNEL, KERNEL, size, units)
    return {f'{name}.kernel': kernel, f'{name}.bias': (units,)}
