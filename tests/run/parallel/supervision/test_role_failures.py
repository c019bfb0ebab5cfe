"""Failures of roles: when a restart helps, and what the user reads."""

import errno
import importlib.util

import pytest

from embodied.core.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    FolderInUseError,
    RoleError,
)
from embodied.envs.runtime.handles import InlineHandle, ProcessHandle
from embodied.processes.failure import Failure
from embodied.run.parallel.supervision.role_failure import RoleFailure
from embodied.run.parallel.supervision.states.restarts import Restarts
from embodied.transport import AddressInUse, Refused, RemoteError

USER_ENV = """
class Env:
    obs_space = act_space = {}

    def step(self, action):
        return self.simulate(action)

    def simulate(self, action):
        raise ValueError('the simulator fell over')
"""


def failure_of(error):
    try:
        raise error
    except type(error) as raised:
        return Failure.of(raised)


@pytest.fixture
def make_failure(tmp_path):
    log = tmp_path / 'cook.log'
    log.write_text('first\n' * 20 + 'a last word\n')

    def make(error=None, code=1, cause=''):
        failure = failure_of(error) if error else None
        return RoleFailure('cook', 7, code, log, failure, cause)

    return make


@pytest.mark.parametrize(
    ('error', 'final', 'transient'),
    [
        (ValueError('x'), False, False),
        (ConfigError('x'), True, False),
        (CheckpointError('x'), True, False),
        (OSError(errno.ENOSPC, 'x'), True, False),
        (OSError(errno.EMFILE, 'x'), False, False),
        (AddressInUse('x'), False, True),
        (ConnectionRefusedError('x'), False, True),
        (FolderInUseError('x'), False, True),
        (RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating'), False, True),
        (RemoteError('ValueError: x'), False, False),
        (RemoteError('OSError: x', errno=errno.EDQUOT), True, False),
        (Refused('x'), True, False),
        # What a message says decides nothing.
        (ValueError('No space left on device'), False, False),
        (ValueError('RESOURCE_EXHAUSTED is not a valid name'), False, False),
        (RemoteError('OSError: x', errno=errno.ENOSPC), True, False),
    ],
)
def test_errors_are_final_transient_or_neither(make_failure, error, final, transient):
    failure = make_failure(error)
    assert (failure.final, failure.transient) == (final, transient)


@pytest.mark.parametrize(
    ('number', 'hint'), [(errno.ENOSPC, 'make room'), (errno.EMFILE, 'ulimit -n')]
)
def test_exhausted_resources_come_with_what_to_do(make_failure, number, hint):
    assert hint in str(make_failure(OSError(number, 'x')).error())


def test_the_cause_of_an_error_counts(make_failure):
    error = RuntimeError('cannot save')
    error.__cause__ = OSError(errno.ENOSPC, 'No space left on device')
    assert make_failure(error).final


def test_the_message_has_role_error_log_and_its_end(make_failure):
    failure = make_failure(code=-11)
    message = str(failure.error('It was tried 3 times.'))
    assert message.startswith('The cook (process 7) failed: killed by signal 11 (Segm')
    assert 'It was tried 3 times.' in message
    assert f'{failure.log} ends with:' in message
    assert message.endswith('  a last word')
    assert message.count('  first') == 9


def test_what_a_server_raised_is_told_of_that_server(make_failure):
    failure = make_failure(RemoteError('ValueError: full', 'Traceback', 'replay'))
    failure.log.with_name('replay.log').write_text('of the replay')
    message = str(failure.error())
    assert failure.summary == 'in the replay: ValueError: full'
    assert message.startswith('The replay failed: ValueError: full\n\nRemote Traceback')
    assert message.endswith('replay.log ends with:\n  of the replay')


@pytest.mark.parametrize(
    ('written', 'shown'),
    [
        ('old\n--- The role starts at 12\nnew\n', ['new']),
        ('old\n--- The role starts at 12\n', ['(nothing)']),
        ('old\nThe role fails:\nTraceback\n', ['old']),
        ('--- The role starts\nThe role fails:\nx\n', ['(nothing but the error)']),
    ],
)
def test_only_what_the_last_process_said_before_its_error_is_shown(
    make_failure, written, shown
):
    failure = make_failure(ValueError('x'))
    failure.log.write_text(written)
    _, _, lines = str(failure.error()).partition(' ends with:\n')
    assert [line.strip() for line in lines.splitlines()] == shown


def test_a_mistake_of_the_user_is_told_in_its_own_words(make_failure):
    error = make_failure(ConfigError('batch_size=0 must be at least 1.')).error()
    assert type(error) is ConfigError
    assert str(error) == 'batch_size=0 must be at least 1.'


def test_an_error_in_an_environment_points_to_the_users_line(tmp_path, make_failure):
    path = tmp_path / 'my_env.py'
    path.write_text(USER_ENV)
    spec = importlib.util.spec_from_file_location('my_env', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handle = InlineHandle(module.Env, 3)
    for request in (['make'], ['step', {}]):
        handle.request(*request)
        try:
            handle.receive()
        except EnvError as error:
            failure = Failure.of(error)
    assert failure.place == f'{path}:9 in simulate'
    message = str(make_failure()._replace(failure=failure).error())
    assert 'Environment 3 failed in step(): ValueError: the simulator fell' in message
    assert f'File "{path}", line 9, in simulate' in message
    assert 'embodied' not in message.partition(' ends with')[0]


class EnvOnFullDisk:
    obs_space = act_space = {}

    def step(self, action):
        raise OSError(errno.ENOSPC, 'cannot write the episode')

    def close(self):
        pass


def test_a_failure_keeps_its_number_and_place_on_its_way_through_processes(
    make_failure,
):
    handle = ProcessHandle(EnvOnFullDisk, 3)
    handle.request('make')
    handle.receive()
    handle.request('step', {})
    with pytest.raises(EnvError) as info:
        handle.receive()
    handle.close()
    failure = make_failure(info.value)
    assert failure.final
    assert failure.failure.place.endswith('in step')
    assert 'make room' in str(failure.error())


def raise_in(name):
    """From a line of its own per name."""
    if name == 'here':
        raise ValueError('x')
    raise ValueError('x')


def marks(*names):
    for name in names:
        try:
            raise_in(name)
        except ValueError as error:
            yield RoleFailure('cook', 7, 1, None, Failure.of(error)).signature


def test_errors_are_told_apart_by_their_place():
    here, there, again = marks('here', 'there', 'here')
    assert here == again != there


# Whether and when to start again


LIMIT = 3


def lives(failures):
    """Delays until there is no use in it; (failure, progress, seconds) per life."""
    restarts, delays = Restarts(LIMIT), []
    for failure, progress, seconds in failures:
        try:
            delays.append(restarts.delay(failure, progress, seconds))
        except RoleError as error:
            return delays, str(error)
    return delays, ''


def test_delays_double_until_there_is_progress(make_failure):
    killed = make_failure(code=-9)
    delays, _ = lives([(killed, False, 1)] * 3 + [(killed, True, 1)])
    assert delays == [0.25, 0.5, 1.0, 0.25]


@pytest.mark.parametrize(
    ('code', 'error', 'cause', 'progress', 'seconds', 'expected'),
    [
        (-9, None, '', True, 1, 10),  # killed from outside: restarts for ever
        (-9, None, '', False, 1, LIMIT),
        (-9, None, 'out of memory', True, 1, LIMIT),
        (-9, None, 'out of memory', True, 99, 10),
        (-11, None, '', True, 1, LIMIT),  # crashes soon, again and again
        (-11, None, '', False, 1, 1),  # crashes at once
        (1, ValueError('x'), '', False, 1, 1),
        (1, ValueError('x'), '', True, 1, LIMIT),
        (1, ValueError('x'), '', True, 99, 10),
        (1, ConnectionRefusedError('x'), '', False, 1, LIMIT),
        (1, OSError(errno.ENOSPC, 'x'), '', True, 99, 0),
        (1, AddressInUse('x'), '', True, 1, LIMIT),
    ],
)
def test_restarts_end_where_they_do_not_help(
    make_failure, code, error, cause, progress, seconds, expected
):
    failure = make_failure(error, code, cause)
    restarts, count = Restarts(LIMIT), 0
    for _ in range(10):
        try:
            restarts.delay(failure, progress, seconds)
        except (RoleError, AddressInUse):
            break
        count += 1
    assert count == expected


def test_without_restarts_the_first_failure_is_raised(make_failure):
    with pytest.raises(RoleError, match='killed by signal 9'):
        Restarts(0).delay(make_failure(code=-9), True, 99)


def test_an_address_that_is_taken_from_the_start_is_told_at_once(make_failure):
    with pytest.raises(AddressInUse):
        Restarts(LIMIT).delay(make_failure(AddressInUse('x')), False, 1)
