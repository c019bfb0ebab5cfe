"""Outputs for other tools: CSV, TensorBoard, Weights & Biases, read back for real."""

import csv
import io
import struct

import elements
import numpy as np
import pytest
from PIL import Image
from tensorboardX.proto.event_pb2 import Event
from wandb.proto.wandb_internal_pb2 import Record

from dreamerv3 import config as config_lib
from dreamerv3 import sinks
from embodied.core.errors import ConfigError
from embodied.logging import Logger, ScoreFile
from embodied.logging.csv_output import CsvOutput
from embodied.logging.logger import Episode
from embodied.logging.tensorboard_output import TensorBoardOutput
from embodied.logging.wandb_output import WandbOutput

VIDEO = (np.arange(4)[:, None, None, None] * np.full((1, 8, 8, 3), 40)).astype(np.uint8)
METRICS = {
    'loss': np.float32(1.5),
    'spread': np.arange(10.0),
    'picture': VIDEO[2],
    'film': VIDEO,
    'note': 'hello',
}


def log(*outputs, steps=(7,)):
    counter = elements.Counter()
    logger = Logger(counter, list(outputs))
    for step in steps:
        counter.load(step)
        logger.add(METRICS, prefix='train')
        logger.write()
    logger.close()


# CSV


def rows(folder):
    with (folder / 'metrics.csv').open(newline='') as file:
        return [
            (int(r['step']), r['name'], float(r['value'])) for r in csv.DictReader(file)
        ]


def test_csv_has_a_row_per_value_and_goes_on_after_a_restart(tmp_path):
    log(CsvOutput(tmp_path), steps=(7, 9))
    log(CsvOutput(tmp_path), steps=(8,))
    assert rows(tmp_path) == [(step, 'train/loss', 1.5) for step in (7, 9, 8)]


@pytest.mark.parametrize('rest', ['', '9,17', '9,1.0,train/loss,1'])
def test_csv_forgets_half_a_row_of_a_crash(tmp_path, rest):
    log(CsvOutput(tmp_path))
    path = tmp_path / 'metrics.csv'
    path.write_text(path.read_text() + rest)
    log(CsvOutput(tmp_path), steps=(9,))
    assert rows(tmp_path) == [(step, 'train/loss', 1.5) for step in (7, 9)]


# TensorBoard


def summaries(folder):
    """(step, tag, value) of all event files, decoded from their records."""
    for path in sorted((folder / 'tensorboard').iterdir()):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack('<Q', data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[12 + size + 4 :]
            for value in event.summary.value:
                yield event.step, value.tag, value


def test_tensorboard_gets_a_point_per_episode_and_the_options_as_text(tmp_path):
    counter = elements.Counter()
    options = {'task': 'toy_catch', 'run.envs': 16}
    logger = Logger(counter, [TensorBoardOutput(tmp_path, options=options)])
    scores = ScoreFile(tmp_path, logger)
    scores.add(3, {'score': 1.5, 'length': 7}, env=0)
    scores.add(5, {'score': -2.0, 'length': 9}, env=1)
    scores.add(5, {'score': 4.0, 'length': 8}, env=0, is_eval=True)
    scores.close()
    logger.close()
    found = [
        (step, tag, value.simple_value) for step, tag, value in summaries(tmp_path)
    ]
    assert [x for x in found if x[1].startswith('scores/')] == [
        (3, 'scores/score', 1.5),
        (3, 'scores/length', 7),
        (5, 'scores/score', -2.0),
        (5, 'scores/length', 9),
        (5, 'scores/eval/score', 4.0),
        (5, 'scores/eval/length', 8),
    ]
    (text,) = [x for _, tag, x in summaries(tmp_path) if tag == 'options/text_summary']
    assert text.metadata.plugin_data.plugin_name == 'text'
    # Four spaces: lines of code, which Markdown leaves as they are.
    assert text.tensor.string_val == [b'    task: toy_catch\n    run.envs: 16']


def test_episodes_are_kept_for_outputs_that_take_them_and_failures_reported():
    class Broken(list):
        def __call__(self, entries):
            self.append(entries)

        def add_episodes(self, episodes):
            raise OSError(f'no room for {len(episodes)}')

    reports, broken, others = [], Broken(), []
    logger = Logger(
        elements.Counter(), [broken, others.append], lambda *x: reports.append(x)
    )
    for step in (1, 2):
        logger.add_episode(Episode(step, 0.0, 1, False))
    logger.add({'x': 1})
    logger.write()
    assert reports == [('Broken', 'OSError: no room for 2')]
    assert (len(broken), len(others)) == (0, 1)


def test_tensorboard_gets_scalars_histograms_images_and_videos(tmp_path):
    log(TensorBoardOutput(tmp_path, fps=10))
    found = {tag: value for step, tag, value in summaries(tmp_path) if step == 7}
    assert found['train/loss'].simple_value == 1.5
    assert found['train/spread'].histo.num == 10
    assert found['train/spread'].histo.sum == 45
    decode = lambda tag: Image.open(io.BytesIO(found[tag].image.encoded_image_string))
    picture, film = decode('train/picture'), decode('train/film')
    assert picture.format == 'PNG' and picture.getpixel((9, 9)) == (80, 80, 80)
    assert (film.format, film.n_frames, film.info['duration']) == ('GIF', 4, 100)
    assert found['train/note/text_summary'].tensor.string_val == [b'hello']


# Weights & Biases


def blocks(data):
    """Records of a transaction log: parts with a header, in blocks of 32 kB."""
    position, whole = 7, b''
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:  # no room for a header
            position += left
            continue
        _, size, kind = struct.unpack('<IHB', data[position : position + 7])
        whole += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # the only part, or the last one
            yield whole
            whole = b''


def wandb_records(folder):
    """What the offline run has written."""
    (path,) = (folder / 'wandb').glob('offline-run-*/*.wandb')
    return map(Record.FromString, blocks(path.read_bytes()))


def history(folder):
    """Lines of the curves of the offline run."""
    for record in wandb_records(folder):
        items = record.history.item
        if items:
            yield {'/'.join(x.nested_key) or x.key: x.value_json for x in items}


def test_wandb_offline_keeps_everything_and_the_run_its_id(tmp_path):
    log(WandbOutput(tmp_path, 'test', 'offline', {'a.b': 1}, fps=10), steps=(7, 5))
    first, second = history(tmp_path)
    assert (first['train/loss'], first['env_step']) == ('1.5', '7')
    assert second['env_step'] == '5', 'steps may go back'
    kinds = {'spread': 'histogram', 'picture': 'image-file', 'film': 'video-file'}
    assert {k: first[f'train/{k}/_type'] for k in kinds} == {
        k: f'"{v}"' for k, v in kinds.items()
    }
    (media,) = (tmp_path / 'wandb').glob('offline-run-*/files/media/videos/train')
    with Image.open(sorted(media.iterdir())[0]) as film:
        assert film.n_frames == 4
    name = (tmp_path / 'wandb-id').read_text()
    log(WandbOutput(tmp_path, 'test', 'offline'), steps=(9,))
    assert (tmp_path / 'wandb-id').read_text() == name
    # Two of the same second have a number as well.
    assert len(list((tmp_path / 'wandb').glob(f'offline-run-*-{name}*'))) == 2


@pytest.mark.parametrize('name', ['', 'large'])
def test_wandb_runs_are_found_by_entity_group_tags_and_name(tmp_path, name):
    folder = tmp_path / 'catch-0'
    about = {'entity': 'lab', 'group': 'seeds', 'tags': ['baseline', 'v 2']}
    log(WandbOutput(folder, 'worlds', 'offline', {'a.b': 1}, name=name, **about))
    runs = [x.run for x in wandb_records(folder) if x.HasField('run')]
    assert {(x.project, x.entity, x.run_group) for x in runs} == {
        ('worlds', 'lab', 'seeds')
    }
    assert {x.display_name for x in runs} == {name or 'catch-0'}
    assert {tuple(x.tags) for x in runs} == {('baseline', 'v 2')}
    assert {x.run_id for x in runs} == {(folder / 'wandb-id').read_text()}


def wandb_options(tmp_path, *flags):
    flags = '--logdir', str(tmp_path), '--logger.outputs', 'jsonl,wandb', *flags
    return config_lib.resolve(['--logger.wandb.mode', 'offline', *flags])[0]


def test_wandb_gets_its_options_from_the_command_line(tmp_path):
    flags = '--logger.wandb.entity', 'lab', '--logger.wandb.tags', 'baseline, v 2'
    flags += '--logger.wandb.group', 'seeds', '--logger.wandb.name', 'large'
    config = wandb_options(tmp_path, *flags)
    sinks.check(config)
    sinks.make_logger(config).close()
    run = next(x.run for x in wandb_records(tmp_path) if x.HasField('run'))
    assert (run.entity, run.run_group, run.display_name) == ('lab', 'seeds', 'large')
    assert list(run.tags) == ['baseline', 'v 2']
    values = {x.key: x.value_json for x in run.config.update}
    assert values['run.envs'] == '16'


@pytest.mark.parametrize(('tags', 'length'), [('a,,b', 0), ('a,' + 65 * 'b', 65)])
def test_tags_that_wandb_would_refuse_are_refused_before_the_start(
    tmp_path, tags, length
):
    config = wandb_options(tmp_path, '--logger.wandb.tags', tags)
    with pytest.raises(ConfigError, match=f'a tag of {length} characters.*1 to 64'):
        sinks.check(config)


# What fails is dropped


def test_output_that_cannot_be_made_is_reported_and_the_run_goes_on(capfd):
    reports, written = [], []
    logger = Logger(elements.Counter(), [written.append], lambda *x: reports.append(x))

    def make():
        raise ConnectionError('no route')

    logger.attach('wandb', make)
    logger.add({'x': 1})
    logger.write()
    assert len(written) == 1
    assert reports == [('wandb', 'ConnectionError: no route')]
    assert 'wandb failed and is off from now on' in capfd.readouterr().err


def test_mistakes_of_the_user_are_raised():
    def make():
        raise ConfigError('no such thing')

    with pytest.raises(ConfigError, match='no such thing'):
        Logger(elements.Counter(), []).attach('x', make)
