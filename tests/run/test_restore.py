"""Restoring: what is loaded, and what the events say about it."""

import numpy as np
import pytest

from embodied.logging import JsonlOutput, read_records
from embodied.run.shared.restore import note_rewind


def write_metrics(logdir, *records):
    """Lines (step, metrics)."""
    output = JsonlOutput(logdir)
    for step, metrics in records:
        output([(step, name, np.asarray(value)) for name, value in metrics.items()])
    output.close()


@pytest.mark.parametrize(
    ('records', 'change'),
    [
        ([], None),
        ([(10, {'train/loss': 0.5})], None),
        ([(10, {'train/updates': 7}), (20, {'train/updates': 8})], None),
        ([(10, {'train/updates': 12})], (12, 8)),
        # The newest line need not have the metric.
        ([(10, {'train/updates': 12}), (20, {'episode/score': 1})], (12, 8)),
        # It went back before, and that was said then.
        ([(10, {'train/updates': 12}), (20, {'train/updates': 8})], None),
    ],
)
def test_an_event_tells_when_the_metrics_were_further(tmp_path, records, change):
    write_metrics(tmp_path, *records)
    note_rewind(tmp_path, 'train/updates', 8)
    events = read_records(tmp_path / 'events.jsonl')
    found = [(x['event'], x['metric'], x['from'], x['to']) for x in events]
    assert found == ([('rewind', 'train/updates', *change)] if change else [])
