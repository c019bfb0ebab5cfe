"""The oracle reproduces every value of the golden file."""

import functools

import numpy as np
import oracle
import pytest

TOLERANCE = 1e-5  # tighter than asked, or a wrong entropy scale would hide in it
UPDATE_TOLERANCE = 1e-4  # the file's bias corrections are 1 - 0.999**n in float32
GROUPS = (
    'enc',
    'core',
    'prior',
    'observe',
    'kl',
    'dec',
    'heads',
    'imag',
    'repl',
    'lam',
    'opt',
    'wm_scalar',
)
PROBLEM = oracle.Problem(
    vectors={'vector': 7},
    tokens={'token': 11},
    discrete={'disc': 5},
    continuous={'cont': 3},
)


@pytest.fixture(scope='module')
def outputs(golden):
    return oracle.evaluate(golden)


def test_the_file_has_exactly_the_known_groups(golden):
    names = {k.split('.')[1] for k in golden if k.startswith('out.')}
    assert names == {*GROUPS, 'wm_grad', 'core_grad'}


def test_parameters_have_the_expected_names_and_shapes(golden):
    given = {
        k.removeprefix('params.'): v.shape
        for k, v in golden.items()
        if k.startswith('params.')
    }
    assert given == oracle.shapes(PROBLEM)


@pytest.mark.parametrize('group', GROUPS)
def test_every_value_of_the_group_is_reproduced(golden, outputs, group):
    prefix = f'out.{group}'
    names = {k for k in golden if k == prefix or k.startswith(f'{prefix}.')}
    assert names == {k for k in outputs if k == prefix or k.startswith(f'{prefix}.')}
    errors = {k: oracle.relative_error(outputs[k], golden[k]) for k in names}
    tolerance = UPDATE_TOLERANCE if group == 'opt' else TOLERANCE
    assert {k: v for k, v in errors.items() if v >= tolerance} == {}


def test_updates_of_large_parameters_are_reproduced_to_the_last_bit(golden, outputs):
    # The updates are so small against the values of this tensor that a relative error
    # would accept none at all.
    for index in range(1, 5):
        name = f'out.opt.params{index}.a'
        np.testing.assert_array_equal(outputs[name], golden[name])
    assert (golden['out.opt.params4.a'] != golden['in.opt.params.a']).any()


def test_core_gradients_are_reproduced_in_every_element(golden):
    function, params, grads = _scalar(golden, 'core_grad', oracle.core_scalar)
    for name, grad in grads.items():
        derived = oracle.gradient(function, params, name)
        assert oracle.relative_error(derived, grad) < TOLERANCE, name


def test_world_model_gradients_are_reproduced_in_random_directions(golden):
    function, params, grads = _scalar(golden, 'wm_grad', oracle.wm_scalar)
    rng = np.random.default_rng(0)
    for name, grad in grads.items():
        for _ in range(2):
            direction = rng.standard_normal(grad.shape)
            derived = oracle.directional(function, params, name, direction)
            error = abs(derived - (grad * direction).sum()) / np.linalg.norm(grad)
            assert error < TOLERANCE, name


def test_world_model_gradients_are_reproduced_in_single_elements(golden):
    function, params, grads = _scalar(golden, 'wm_grad', oracle.wm_scalar)
    rng = np.random.default_rng(1)
    for name, grad in grads.items():
        largest = np.abs(grad).argmax()
        for index in {int(largest), int(rng.integers(grad.size))}:
            direction = np.zeros(grad.size)
            direction[index] = 1
            derived = oracle.directional(
                function, params, name, direction.reshape(grad.shape)
            )
            error = abs(derived - grad.flat[index]) / np.abs(grad).max()
            assert error < TOLERANCE, (name, index)


def _scalar(golden, group, function):
    """The scalar function of the parameters, the parameters, its golden gradients."""
    tree = oracle.nest(golden)
    prefix = f'out.{group}.'
    grads = {k.removeprefix(prefix): v for k, v in golden.items() if prefix in k}
    return functools.partial(function, inputs=tree['in']), tree['params'], grads
