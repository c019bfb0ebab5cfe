"""State as named flat lists, programs compiled ahead of time, choice of devices."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.core.errors import CheckpointError, ConfigError
from embodied.jax import nets
from embodied.jax.programs import Compiler, Program, choose_device, setup
from embodied.jax.tree import Packer, Tree


def tree():
    linear = nets.build(lambda init: nets.Linear(init, 2, 3), jax.random.key(0))
    return {'params': {'net': linear, 'list': [jnp.zeros(2)]}, 'count': jnp.int32(5)}


NAMES = ['count', 'params.list.0', 'params.net.kernel', 'params.net.bias']


def test_leaves_have_readable_names_in_the_order_of_the_leaves():
    structure = Tree(tree())
    assert structure.names == NAMES
    shapes = [leaf.shape for leaf in structure.flatten(tree())]
    assert shapes == [(), (2,), (2, 3), (3,)]


def test_unflatten_inverts_flatten():
    original = tree()
    structure = Tree(jax.eval_shape(lambda: original))
    copy = structure.unflatten(structure.flatten(original))
    assert jax.tree.structure(copy) == jax.tree.structure(original)
    assert jax.tree.all(jax.tree.map(np.array_equal, copy, original))


def test_saved_arrays_survive_the_donation_of_the_leaves():
    leaves = [jnp.arange(1000.0)]
    structure = Tree(leaves)
    saved = structure.save(leaves)
    jax.jit(lambda x: [x[0] * 0 - 1], donate_argnums=0)(leaves)
    np.testing.assert_array_equal(saved['0'], np.arange(1000.0))


def test_loading_restores_every_leaf_with_its_dtype():
    structure = Tree(tree())
    leaves = structure.flatten(tree())
    saved = structure.save(leaves)
    loaded = structure.load([jnp.zeros_like(x) for x in leaves], saved)
    for old, new in zip(leaves, loaded, strict=True):
        np.testing.assert_array_equal(old, new)
        assert old.dtype == new.dtype


def test_loading_by_regex_takes_only_matching_names():
    structure = Tree(tree())
    leaves = structure.flatten(tree())
    ones = {k: np.ones_like(v) for k, v in structure.save(leaves).items()}
    loaded = dict(zip(NAMES, structure.load(leaves, ones, r'\.net\.'), strict=True))
    changed = {k for k, v in loaded.items() if np.all(v == 1)}
    assert changed == {'params.net.kernel', 'params.net.bias'}
    assert loaded['count'] == 5


def test_a_regex_may_leave_out_what_does_not_fit():
    structure = Tree(tree())
    leaves = structure.flatten(tree())
    saved = structure.save(leaves) | {'params.net.kernel': np.zeros((9, 9))}
    structure.load(leaves, saved, 'bias')


@pytest.mark.parametrize(
    ('change', 'regex', 'parts'),
    [
        (
            {'params.net.bias': np.zeros(4)},
            None,
            ['params.net.bias', '(4,) in the checkpoint', '(3,) here', 'same size'],
        ),
        ({'count': None}, None, ['count: missing in the checkpoint']),
        ({}, 'nothing', ["'nothing'", 'Names look like', 'params.list.0']),
    ],
    ids=['shape', 'missing', 'no match'],
)
def test_checkpoints_that_do_not_fit_are_refused(change, regex, parts):
    structure = Tree(tree())
    leaves = structure.flatten(tree())
    data = {**structure.save(leaves), **change}
    data = {k: v for k, v in data.items() if v is not None}
    with pytest.raises(CheckpointError) as error:
        structure.load(leaves, data, regex)
    for part in parts:
        assert part in str(error.value)


def test_the_suggested_pattern_takes_what_fits_and_only_that():
    structure = Tree(tree())
    leaves = structure.flatten(tree())
    ones = {k: np.ones_like(v) for k, v in structure.save(leaves).items()}
    ones['params.net.bias'] = np.ones(4)
    with pytest.raises(CheckpointError) as error:
        structure.load(leaves, ones, '.*')
    pattern = re.search(r"--run\.from_checkpoint_regex '(.*)'", str(error.value))[1]
    loaded = dict(zip(NAMES, structure.load(leaves, ones, pattern), strict=True))
    assert {k for k, v in loaded.items() if np.all(v == 1)} == (
        set(NAMES) - {'params.net.bias'}
    )


def test_no_pattern_is_suggested_where_nothing_fits():
    structure = Tree([jnp.zeros(1)])
    with pytest.raises(CheckpointError) as error:
        structure.load([jnp.zeros(1)], {'0': np.zeros(2)}, '.*')
    assert 'regex' not in str(error.value)


def test_many_misfits_are_summed_up():
    structure = Tree([jnp.zeros(1)] * 8)
    with pytest.raises(CheckpointError, match=r'and 3 more'):
        structure.load([jnp.zeros(1)] * 8, {})


def test_scalars_travel_as_one_vector_in_their_own_order():
    packer = Packer()
    scalars = {'b': jnp.float32(1), 'a': jnp.int32(2), 'c': jnp.bool_(True)}
    vector = jax.jit(packer.pack)(scalars)
    assert vector.shape == (3,)
    assert packer.unpack(vector) == {'b': 1.0, 'a': 2.0, 'c': 1.0}


def test_no_scalars_are_an_empty_vector():
    packer = Packer()
    assert packer.unpack(packer.pack({})) == {}


def test_unknown_platform_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match='gpu.*auto, cpu, cuda'):
        setup('gpu')


def test_setup_creates_the_folder_of_compiled_programs(tmp_path):
    names = (
        'jax_compilation_cache_dir',
        'jax_persistent_cache_min_compile_time_secs',
        'jax_persistent_cache_min_entry_size_bytes',
    )
    before = {name: getattr(jax.config, name) for name in names}
    try:
        setup('cpu', str(tmp_path / 'a' / 'b'))
        assert (tmp_path / 'a' / 'b').is_dir()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / 'a' / 'b')
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_a_program_is_compiled_once_per_signature():
    compiler, traced = Compiler(), []

    def double(x):
        traced.append(x.shape)
        return 2 * x

    program = Program('double', compiler, double)
    for size in (2, 3, 2, 2):
        assert program(size, np.ones(size, np.float32)).tolist() == [2.0] * size
    assert traced == [(2,), (3,)]
    assert [x.program for x in compiler.log] == ['double', 'double']
    assert all(x.seconds > 0 for x in compiler.log)


def test_a_program_that_was_prepared_is_not_compiled_again():
    compiler, traced = Compiler(), []

    def double(x):
        traced.append(x.shape)
        return 2 * x

    program = Program('double', compiler, double)
    program.prepare('two', jax.ShapeDtypeStruct((2,), jnp.float32))
    assert program('two', np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert traced == [(2,)]
    assert len(compiler.log) == 1


def test_a_program_is_named_while_it_is_compiled():
    compiler, seen = Compiler(), []

    def double(x):
        seen.extend(compiler.running())
        return 2 * x

    Program('double', compiler, double)(1, np.ones(1, np.float32))
    ((name, seconds),) = seen
    assert name == 'double'
    assert seconds >= 0
    assert compiler.running() == []


def test_an_error_of_a_program_that_was_prepared_reaches_the_caller():
    def broken(x):
        raise ValueError('broken on purpose')

    program = Program('broken', Compiler(), broken)
    program.prepare(1, jax.ShapeDtypeStruct((1,), jnp.float32))
    with pytest.raises(ValueError, match='on purpose'):
        program(1, np.ones(1, np.float32))


def test_arguments_can_be_donated():
    program = Program('add', Compiler(), lambda x, y: x + y, donate=(0,))
    given = jnp.ones(1000)
    program(1000, given, jnp.ones(1000))
    assert given.is_deleted()


@pytest.mark.parametrize('name', ['gpu', '7', '-1'])
def test_devices_that_are_not_there_are_refused(name):
    with pytest.raises(ConfigError, match=f"policy_devices='{name}'.*below 1"):
        choose_device(name)


def test_devices_are_chosen_by_name_or_number():
    assert choose_device('') is None
    assert choose_device('cpu') == jax.devices('cpu')[0]
    assert choose_device('0') == jax.devices()[0]


def test_threads_take_turns_more_often_than_updates_come():
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        setup('cpu')
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)
