"""Timeouts that depend on each other are in the right order, also with the defaults."""

import dataclasses
from pathlib import Path

import pytest

from embodied import transport
from embodied.clock import replica_timeouts as r
from embodied.run.parallel import timeouts as t
from embodied.run.parallel.settings import ParallelSettings

DEFAULTS = {x.name: x.default for x in dataclasses.fields(ParallelSettings)}
GRACE, HANG = DEFAULTS['grace'], DEFAULTS['hang_timeout']
CONNECTION = transport.Settings()
SERVER_CLOSES = 2 * CONNECTION.grace  # handlers end, then replies are sent

# What has to be longer than what.
ORDERS = {
    'a silent role has missed several heartbeats': (t.ROLE_SILENT, 5 * t.HEARTBEAT),
    'a suspended role has missed several heartbeats': (t.SUSPENDED, 4 * t.HEARTBEAT),
    'a suspended machine is noticed before roles count as silent': (
        t.ROLE_SILENT,
        t.SUSPENDED,
    ),
    'a stopped role continues before it counts as silent': (
        t.ROLE_SILENT,
        t.CONTINUES,
    ),
    'a hung role is silent before': (HANG, t.ROLE_SILENT),
    'a hung environment is found before it counts as gone': (t.ENV_SILENT, HANG),
    'a short wait is not worth a line': (t.SAY_WAITING, t.HEARTBEAT),
    'the learner outwaits the actor': (
        t.ACTOR_ENDS,
        t.WORKERS_LEAVE + SERVER_CLOSES + t.LAST_EPISODES,
    ),
    'a failure outwaits the end of the actor': (
        t.OTHER_THREAD_ENDS,
        SERVER_CLOSES + t.LAST_EPISODES,
    ),
    'after a failure the agent has time to save': (t.LEAD_SAVES, t.WRITERS_ANSWER),
    'latents wait for a new connection': (t.LATENTS_WAIT, CONNECTION.patience),
    'a clean end of the agent fits into the grace': (
        GRACE,
        t.WRITERS_ANSWER + t.ACTOR_ENDS + 4 * t.LAST_MESSAGES + t.WRITERS_SAVE,
    ),
    'output of dead processes arrives within the grace': (GRACE, t.LAST_OUTPUT),
    'environments close within the grace': (GRACE, t.ENVS_CLOSE),
    'a signal ends a worker within the grace': (GRACE, t.WORKER_EXIT),
    'a dead replica is found before the clocks give it up': (
        r.CLOCK_ASKED,
        r.REPLICA_SILENT,
    ),
    'the clocks name the silent replica before they count as silent': (
        r.CLOCK_ANSWERS,
        r.CLOCK_ASKED,
    ),
    'replicas that start late are not taken for dead': (
        r.REPLICAS_START,
        r.REPLICA_SILENT,
    ),
    'a replica that fails ends within the grace of the others': (GRACE, r.REPLICAS_END),
}


@pytest.mark.parametrize(('longer', 'shorter'), ORDERS.values(), ids=ORDERS)
def test_orders_of_timeouts_hold(longer, shorter):
    assert longer > shorter


def test_every_timeout_has_its_order_or_is_part_of_one():
    source = Path(__file__).read_text()
    for prefix, module in (('t', t), ('r', r)):
        names = sorted(name for name in vars(module) if name.isupper())
        assert [name for name in names if f'{prefix}.{name}' not in source] == []
