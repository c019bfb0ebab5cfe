"""Keys of steps: for the log only, of the model's state, or neither."""

import pytest

from embodied.core.step_keys import is_latent, is_log, without_log

KEYS = [
    # key, for the log only, latent
    ('image', False, False),
    ('log/visits', True, False),
    ('log', False, False),
    ('logs/visits', False, False),
    ('dyn/deter', False, True),
    ('enc/cache', False, True),
    ('dec/cache', False, True),
    ('dynamics', False, False),
]


@pytest.mark.parametrize(('key', 'log', 'latent'), KEYS)
def test_keys_say_what_they_are(key, log, latent):
    assert (is_log(key), is_latent(key)) == (log, latent)


def test_a_step_keeps_the_order_of_its_keys_without_those_of_the_log():
    step = {key: index for index, (key, *_) in enumerate(KEYS)}
    assert list(without_log(step)) == [key for key, log, _ in KEYS if not log]


def test_latents_are_names_or_prefixes_that_end_in_a_slash():
    named = ('state', 'memory/')
    assert is_latent('state', named) and is_latent('memory/x', named)
    assert not is_latent('state/x', named) and not is_latent('dyn/deter', named)
