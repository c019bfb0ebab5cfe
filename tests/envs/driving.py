"""Plays drivers in tests: policies, and what their transitions are compared by."""

import contextlib

import numpy as np

import embodied


def counting_policy(carry, obs):
    """Acts 1, 2, 3, ... by its carry and gives out twice of that."""
    carry = carry + 1
    return carry, {'action': carry.astype(np.int32)}, {'double': 2 * carry}


def zeros(count):
    return np.zeros(count, np.int64)


def record(driver):
    """List that the transitions [N, ...] of the driver will be added to."""
    batches = []
    driver.on_batch(lambda trans, _: batches.append(trans))
    return batches


def opened(*args, **options):
    return contextlib.closing(embodied.Driver(*args, **options))


def streams(driver, steps):
    """Transitions of each environment, in order."""
    found = {}
    driver.on_step(
        lambda tran, worker: found.setdefault(worker, []).append(
            {key: np.asarray(value).tolist() for key, value in tran.items()}
        )
    )
    driver.reset(zeros)
    driver(counting_policy, steps=steps)
    return found


def without_policy(trans):
    """What does not depend on how often the policy is called."""
    return [
        {k: v for k, v in tran.items() if k not in ('action', 'double', 'seen')}
        for tran in trans
    ]
