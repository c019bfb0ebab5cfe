"""Reports: which batches they take, and what becomes of their metrics."""

import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.run.shared.reporter import Reporter
from embodied.run.shared.settings import Settings
from embodied.streams import Consec, Stateless

LENGTH, CONSEC, SEQUENCES = 2, 3, 2
OPTIONS = {'consec_report': CONSEC, 'report_batches': SEQUENCES}


class Agent(parts.Agent):
    """Notes each batch with the carry that it came with."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def init_report(self, batch_size):
        return [0] * batch_size

    def report(self, carry, batch):
        self.reports += 1
        sequence = int(batch['sequence'][0, 0])
        self.seen.append((carry[0], int(batch['consec'][0, 0]), sequence))
        image = np.full((4, 4, 3), self.reports, np.uint8)
        return [x + 1 for x in carry], {'number': self.reports, 'image': image}


class Sequences:
    """Numbers what is sampled from it."""

    def __init__(self):
        self.count = 0

    def sample(self, batch=3, mode='report'):
        self.count += 1
        return {'sequence': np.full((batch, CONSEC * LENGTH), self.count)}


def make_reporter(tmp_path, agent, sequences):
    settings = Settings.read(parts.make_args(tmp_path, **OPTIONS))
    stream = Consec(Stateless(sequences.sample), LENGTH, CONSEC)
    return Reporter(agent, stream, settings)


def whole(first):
    """Carry, chunk and sequence of the batches of one report."""
    chunks = [(i, first + j) for j in range(SEQUENCES) for i in range(CONSEC)]
    return [(carry, *chunk) for carry, chunk in enumerate(chunks)]


def test_a_report_takes_whole_sequences_from_a_fresh_carry(tmp_path):
    agent = Agent()
    reporter = make_reporter(tmp_path, agent, Sequences())
    metrics = reporter.report()
    assert agent.seen == whole(first=1)
    assert metrics['number'] == np.mean([1, 2, 3, 4, 5, 6])
    assert (metrics['image'] == 6).all()
    agent.seen.clear()
    assert reporter.report()['number'] == np.mean([7, 8, 9, 10, 11, 12])
    assert agent.seen == whole(first=3)


def test_reports_go_on_with_the_next_sequence_after_a_restart(tmp_path):
    sequences = Sequences()
    reporter = make_reporter(tmp_path, Agent(), sequences)
    reporter.report()
    agent = Agent()
    resumed = make_reporter(tmp_path, agent, sequences)
    resumed.load(reporter.save())
    resumed.report()
    assert agent.seen == whole(first=3)


def test_a_save_of_before_that_lies_within_a_sequence_begins_another(tmp_path):
    """Version 0.1.0 took `report_batches` batches and kept the carry."""
    sequences = Sequences()
    stream = Consec(Stateless(sequences.sample), LENGTH, CONSEC)
    next(stream)
    old = {'batches': {'unused': [], 'stream': stream.save()}, 'carry': [1, 1, 1]}
    agent = Agent()
    resumed = make_reporter(tmp_path, agent, sequences)
    resumed.load(old)
    resumed.report()
    assert agent.seen == whole(first=2)


def test_a_stream_that_ends_ends_the_report(tmp_path):
    settings = Settings.read(parts.make_args(tmp_path, **OPTIONS))
    batch = {'sequence': np.ones((3, 2)), 'consec': np.zeros((3, 2), np.int32)}
    reporter = Reporter(Agent(), iter([batch, batch]), settings)
    assert reporter.report()['number'] == 1.5


@pytest.mark.parametrize('script', ['train', 'train_eval'])
def test_the_loops_report_whole_sequences(tmp_path, script):
    agents = []

    class Recording(parts.Agent):
        def __init__(self):
            super().__init__()
            self.chunks = []
            agents.append(self)

        def init_report(self, batch_size):
            self.chunks.append([])
            return ()

        def report(self, carry, batch):
            self.chunks[-1].append(int(batch['consec'][0, 0]))
            return carry, {}

    def make_stream(replay, mode):
        source = Stateless(replay.sample, 3, mode)
        return source if mode == 'train' else Consec(source, 2, 2, prefix=1)

    train, replays = script == 'train', [parts.SaveableReplay] * 2
    getattr(embodied.run, script)(
        Recording,
        *replays[: 1 if train else 2],
        *[parts.Env] * (1 if train else 2),
        make_stream,
        parts.make_logger,
        parts.make_args(
            tmp_path,
            steps=80,
            report_every=-1.0,
            report_length=2,
            consec_report=2,
            report_batches=2,
        ),
    )
    chunks = agents[0].chunks
    assert len(chunks) > 1 and all(x == [0, 1, 0, 1] for x in chunks)
