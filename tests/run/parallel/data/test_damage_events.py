"""The replay role tells of damaged files in the events of the run."""

import functools
import json

import data_parts as parts
import numpy as np
from data_parts import DEADLINE, Worker

from embodied.replay import Replay
from embodied.replay.recovery.folder import list_segments
from embodied.replay.storage.segment import Segment
from embodied.run.parallel import parallel_replay
from embodied.run.parallel.context import RoleContext


def make_replay(path):
    return Replay(
        parts.LENGTH, 200, path, chunksize=8, sync_every=0, context_keys=('latent',)
    )


def test_damaged_files_become_events_with_file_chunk_and_steps(tmp_path):
    replay = make_replay(tmp_path / 'replay')
    for serial in range(40):
        replay.add_batch(*parts.make_rows(2, serial))
    replay.close()
    files = list_segments(tmp_path / 'replay')
    files[0].unlink()
    numbers = Segment.open(files[1], writable=True).columns['number']
    numbers[1] = np.invert(numbers[1])
    args = parts.make_args(tmp_path)
    make = functools.partial(make_replay, tmp_path / 'replay')
    role = Worker(parallel_replay, make, parts.make_replay, parts.make_stream, args)
    client = RoleContext.of(args).make_client(args.replay_addr, 'test')
    assert client.call('sample_batch_report', 0).result(DEADLINE)
    told = client.call('finish')
    role.join()
    del told
    client.close()
    lines = (tmp_path / 'events.jsonl').read_text().splitlines()
    found = [x for x in map(json.loads, lines) if x['event'] == 'damaged']
    gone, changed = found
    assert (gone['file'], gone['steps']) == ('replay/00000000.seg', 24)
    assert (changed['file'], changed['chunk']) == ('replay/00000001.seg', 1)
    assert changed['steps'] == 8 and 'checksum' in changed['reason']
