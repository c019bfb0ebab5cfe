"""One episode at a time is filmed, from its beginning, up to a number of frames."""

import numpy as np
import pytest

from embodied.run.shared.filming import Filming

NEVER, ALWAYS, PATIENT = 0.0, -1.0, 60.0


def step(filming, *rows):
    """Rows are (envid, number in the image, flags), flags 'f' first and 'l' last."""
    images = [np.full((2, 3, 3), row[1], np.uint8) for row in rows]
    trans = {
        'image': np.array(images),
        'log/view': np.array(images) + 100,
        'vector': np.zeros((len(rows), 3), np.uint8),
        'map': np.zeros((len(rows), 2, 3, 3), np.float32),
        'is_first': np.array(['f' in row[2] for row in rows]),
        'is_last': np.array(['l' in row[2] for row in rows]),
    }
    return filming.add(trans, np.array([row[0] for row in rows]))


def numbers(film):
    return film['image'][:, 0, 0, 0].tolist() if film else None


def test_a_film_shows_one_whole_episode_and_all_its_images():
    filming = Filming(ALWAYS, 100, PATIENT)
    assert not step(filming, (0, 50, ''), (1, 10, 'f'))
    assert not step(filming, (1, 11, ''), (0, 51, 'f'))
    assert not step(filming, (0, 52, 'l'))
    film = step(filming, (0, 53, 'f'), (1, 12, 'l'))
    assert film.keys() == {'image', 'log/view'}
    assert film['image'].shape == (3, 2, 3, 3)
    assert numbers(film) == [10, 11, 12]
    assert film['log/view'][:, 0, 0, 0].tolist() == [110, 111, 112]


def test_the_next_film_begins_with_another_episode():
    filming = Filming(ALWAYS, 100, PATIENT)
    assert numbers(step(filming, (0, 1, 'fl'))) == [1]
    assert not step(filming, (0, 2, ''))
    assert numbers(step(filming, (0, 3, 'fl'))) == [3]


def test_films_are_cut_at_their_greatest_length():
    filming = Filming(ALWAYS, 2, PATIENT)
    assert not step(filming, (4, 1, 'f'))
    assert numbers(step(filming, (4, 2, ''))) == [1, 2]
    assert not step(filming, (4, 3, 'l'))


def test_an_episode_that_starts_again_is_filmed_anew():
    filming = Filming(ALWAYS, 100, PATIENT)
    step(filming, (0, 1, 'f'))
    step(filming, (0, 2, 'f'))
    assert numbers(step(filming, (0, 3, 'l'))) == [2, 3]


def test_a_silent_environment_does_not_keep_the_camera():
    for patience, expected in ((PATIENT, None), (0.0, [7])):
        filming = Filming(ALWAYS, 100, patience)
        step(filming, (0, 1, 'f'))
        assert numbers(step(filming, (1, 7, 'fl'))) == expected


@pytest.mark.parametrize('every, films', [(NEVER, 0), (3600.0, 1), (ALWAYS, 3)])
def test_films_come_as_often_as_asked_for(every, films):
    filming = Filming(every, 100, PATIENT)
    made = [step(filming, (0, number, 'fl')) for number in range(3)]
    assert len([film for film in made if film]) == films


def test_environments_without_images_leave_nothing_to_film():
    filming = Filming(ALWAYS, 5, PATIENT)
    trans = {'is_first': np.array([True]), 'is_last': np.array([True])}
    assert filming.add(trans, np.array([0])) == {}
