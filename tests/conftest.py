"""Settings of every test: JAX on the CPU, and little time spent on compiling."""

import collections
import os

import psutil
import pytest

FASTEST_CACHED = 0.3  # seconds; quicker compilations are not worth a file


def pytest_configure(config: pytest.Config) -> None:
    # Through the environment, so that subprocesses follow and nothing imports JAX.
    settings = {
        'JAX_PLATFORMS': 'cpu',
        # Tests compile many programs and run each a few times.
        'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    }
    cache = getattr(config, 'cache', None)  # missing with `-p no:cacheprovider`
    if cache is not None:
        settings |= {
            'JAX_COMPILATION_CACHE_DIR': str(cache.mkdir('jax')),
            'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': str(FASTEST_CACHED),
        }
    for name, value in settings.items():
        os.environ.setdefault(name, value)


@pytest.fixture
def nothing_is_left():
    """No process outlives the test."""
    # Python's own tracker of resources stays, if an earlier test made it start one.
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line says what was not tested; reasons name the command that helps."""
    reporter = config.pluginmanager.get_plugin('terminalreporter')
    skipped = reporter.stats.get('skipped', []) if reporter else []
    if skipped:
        reasons = collections.Counter(x.longrepr[2] for x in skipped)
        listed = '; '.join(
            f'{count} x {reason.removeprefix("Skipped: ")}'
            for reason, count in reasons.most_common()
        )
        print(f'Skipped {len(skipped)} tests: {listed}.')
