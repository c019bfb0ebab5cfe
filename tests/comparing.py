"""Comparisons of arrays by name."""

import numpy as np


def assert_same(one, two):
    """Equal to the bit, under the same names."""
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
