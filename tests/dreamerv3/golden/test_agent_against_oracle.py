"""The agent agrees with the golden file and, on fresh inputs, with the oracle."""

import agent_outputs
import numpy as np
import oracle
import pytest
from golden_names import by_golden_name

TOLERANCE = 1e-5  # of the largest value: what float32 allows
UPDATE_TOLERANCE = 1e-4  # bias corrections 1 - 0.999**n lose digits in float32
GOLDEN = oracle.Problem(
    vectors={'vector': 7},
    tokens={'token': 11},
    discrete={'disc': 5},
    continuous={'cont': 3},
)
FRESH = {
    'vectors': oracle.Problem(
        image=None, vectors={'b': 3, 'a': 4}, continuous={'move': 2}
    ),
    'images': oracle.Problem(
        image=(16, 16, 3), mults=(2, 3), depth=8, discrete={'left': 3, 'right': 4}
    ),
    'both': oracle.Problem(
        deter=32,
        stoch=3,
        classes=5,
        blocks=4,
        image=(24, 24, 1),
        mults=(1, 2, 2),
        vectors={'position': 3},
        tokens={'symbol': 5},
        discrete={'jump': 2},
        continuous={'move': 3},
    ),
}
GROUPS = (
    *('enc', 'core', 'prior', 'observe', 'kl', 'dec', 'heads', 'imag', 'repl'),
    *('lam', 'opt', 'wm_scalar'),
)


@pytest.fixture(scope='module')
def data(request):
    """Parameters, inputs and expected outputs by name, and their problem."""
    if request.param == 'golden':
        return GOLDEN, request.getfixturevalue('golden')
    name, seed = request.param
    data = oracle.fresh(np.random.default_rng(seed), FRESH[name])
    return FRESH[name], data | oracle.evaluate(data)


def everywhere(function):
    cases = ['golden', *((name, seed) for name in FRESH for seed in range(2))]
    ids = lambda x: x if isinstance(x, str) else f'{x[0]}-{x[1]}'
    return pytest.mark.parametrize('data', cases, indirect=True, ids=ids)(function)


@pytest.fixture(scope='module')
def setup(data):
    return agent_outputs.setup(*data)


@pytest.fixture(scope='module')
def outputs(setup):
    return agent_outputs.evaluate(setup)


@everywhere
def test_parameters_correspond_one_to_one(data, setup):
    ours = by_golden_name(setup.nets, setup.nets)
    ours |= by_golden_name({'slow': setup.slow}, setup.nets)
    assert {k: v.shape for k, v in ours.items()} == oracle.shapes(data[0])


@everywhere
@pytest.mark.parametrize('group', GROUPS)
def test_every_value_of_the_group_agrees(data, outputs, group):
    expected = {k: v for k, v in data[1].items() if f'{k}.'.startswith(f'out.{group}.')}
    tolerance = UPDATE_TOLERANCE if group == 'opt' else TOLERANCE
    errors = {k: oracle.relative_error(outputs[k], expected[k]) for k in expected}
    assert expected
    assert {k: v for k, v in errors.items() if v >= tolerance} == {}


@pytest.mark.parametrize('data', ['golden'], indirect=True)
def test_updates_of_large_parameters_agree_to_the_last_bit(golden, outputs):
    for index in range(1, 5):
        name = f'out.opt.params{index}.a'
        np.testing.assert_array_equal(outputs[name], golden[name])


@pytest.mark.parametrize('data', ['golden'], indirect=True)
def test_gradients_agree_with_the_golden_file_in_every_element(golden, outputs):
    expected = {k: v for k, v in golden.items() if '_grad.' in k}
    errors = {k: oracle.relative_error(outputs[k], v) for k, v in expected.items()}
    assert {k: v for k, v in errors.items() if v >= TOLERANCE} == {}
    assert {k for k, v in outputs.items() if '_grad.' in k and v.any()} == set(expected)


@everywhere
def test_gradients_agree_with_the_oracle_in_random_directions(data, outputs):
    tree = oracle.nest(data[1])
    rng = np.random.default_rng(0)
    scalars = {'core_grad': oracle.core_scalar, 'wm_grad': oracle.wm_scalar}
    for name, grad in outputs.items():
        _, group, *path = name.split('.')
        if group not in scalars or not grad.any():
            continue
        function = lambda params, group=group: scalars[group](params, tree['in'])
        direction = unit(rng.standard_normal(grad.shape)) + unit(grad)
        derived = oracle.directional(
            function, tree['params'], '.'.join(path), direction
        )
        error = abs(derived - (np.float64(grad) * direction).sum())
        assert error < TOLERANCE * np.linalg.norm(grad), name


def unit(x):
    return x / np.linalg.norm(x)
