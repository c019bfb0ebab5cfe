"""Options that no agent can be built from are refused by name."""

import pytest

from dreamerv3 import config as config_lib
from dreamerv3.agent.limits import check_limits
from embodied.core.errors import ConfigError

CASES = [
    ('--agent.imag_length=0', 'agent.imag_length=0 must be at least 1'),
    ('--agent.value.layers=0', 'agent.value.layers=0 must be at least 1'),
    ('--agent.dyn.classes=257', 'agent.dyn.classes=257 must be between 2 and 256'),
    ('--agent.dyn.classes=1', 'agent.dyn.classes=1 must be between 2 and 256'),
    ('--replay_context=-1', 'replay_context=-1 must not be negative'),
]


@pytest.mark.parametrize(('flag', 'message'), CASES)
def test_impossible_options_are_refused(flag, message):
    config, _ = config_lib.resolve([flag])
    with pytest.raises(ConfigError, match=message):
        check_limits(config)


@pytest.mark.parametrize('preset', ['size1m', 'size400m', 'tiny', 'debug'])
def test_presets_are_possible(preset):
    config, _ = config_lib.resolve(['--configs', preset])
    check_limits(config)
