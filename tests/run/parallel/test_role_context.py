"""What a role works with is handed to it, and opens nothing by itself."""

import os
from pathlib import Path

import data_parts as parts
import elements
import pytest
from acting_parts import CountingAgent, Sinks

from embodied.logging import Logger, ScoreFile, read_records
from embodied.run.parallel.actor.actor import Actor
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.logger.logger import LoggerService
from embodied.run.parallel.outbox import Outbox
from embodied.run.parallel.replay.buffer import Buffer
from embodied.run.parallel.replay.replay_service import ReplayService
from embodied.run.parallel.run_state import RunState
from embodied.run.parallel.supervision.health import Health


def sockets():
    folder = Path('/proc/self/fd')
    links = []
    for fd in folder.iterdir():
        if os.path.lexists(fd):  # not the one that lists them
            links.append(os.readlink(fd))
    return {link for link in links if link.startswith('socket:')}


def make_actor(context, stack):
    sinks = stack(Sinks())
    boxes = [Outbox(sinks.client('logger'), name, 8) for name in ('tran', 'add')]
    return Actor(CountingAgent(), sinks.client('replay'), *boxes, RunState(), context)


def make_replay(context, stack):
    make = lambda *modes: Buffer(
        parts.make_replay(), parts.make_stream, modes, context.health
    )
    return ReplayService(make('train', 'report'), make('eval'), context)


def make_logger(context, stack):
    logger = Logger(elements.Counter(), [])
    return LoggerService(logger, ScoreFile(context.settings.logdir), context)


@pytest.mark.parametrize('make', [make_actor, make_replay, make_logger])
def test_role_classes_are_made_without_sockets(tmp_path, make):
    context = parts.make_context(tmp_path)
    before = sockets()
    assert make(context, lambda sinks: sinks)
    assert sockets() == before


def test_a_role_shares_the_health_of_its_process(tmp_path):
    health = Health()
    context = RoleContext.of(parts.make_args(tmp_path), health)
    assert context.health is health
    health.ask_to_end('SIGTERM', ['logger'])
    assert context.health.asked == 'SIGTERM'
    assert context.health.is_gone('logger')
    assert not context.health.is_gone('replay')


def test_roles_of_one_process_have_a_health_each_unless_they_are_given_one(tmp_path):
    one, two = (RoleContext.of(parts.make_args(tmp_path)) for _ in range(2))
    one.health.advance()
    assert one.health.heartbeat().progress == 1
    assert two.health.heartbeat().progress == 0


def test_notes_become_events_of_the_run(tmp_path):
    parts.make_context(tmp_path).note('ended', state='finished')
    (event,) = read_records(tmp_path / 'events.jsonl')
    assert (event['event'], event['state']) == ('ended', 'finished')
