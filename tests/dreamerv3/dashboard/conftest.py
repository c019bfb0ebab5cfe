"""What the tests in a browser share."""

import pytest


@pytest.fixture(scope='module')
def chromium():
    """A browser for the pages of a file."""
    from browsing import browser

    with browser() as found:
        yield found
