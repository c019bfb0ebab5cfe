"""Acting: the policy on rows of a table of carries, one program per number of rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from embodied.core import base

from .devices import near_host
from .packing import PackedRows
from .programs import Compiler, Program

__all__ = ['RowPolicy']

ROW, COUNT, OBS, ACT, OUT = 'row', 'count', 'obs', 'act', 'out'

# policy(params, carry, obs, count) -> carry, acts, outs
Policy = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]


class Layouts(NamedTuple):
    """A program and how its arrays lie in what goes to the device and comes back."""

    program: Program
    given: PackedRows
    results: dict[str, PackedRows]  # known once the program has been traced


class RowPolicy:
    """Compiles itself at the first call for each number and kind of rows.

    Row numbers, observations and the number of the call go to the device in one go;
    acts and outs come back in one.
    """

    def __init__(
        self, policy: Policy, compiler: Compiler, device: jax.Device | None = None
    ):
        self._policy, self._compiler = policy, compiler
        self._placements = (None, near_host(device))  # of the table and the results
        self._programs: dict[tuple, Layouts] = {}

    def __call__(
        self,
        params: list[jax.Array],
        table: base.Carry,
        rows: base.Array,
        obs: base.Batch,
        count: np.uint32,
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        """The table is donated."""
        given: dict[tuple, Any] = {
            (ROW,): np.asarray(rows, np.int32),
            (COUNT,): np.full(len(rows), count, np.uint32),
            **{(OBS, k): v for k, v in obs.items()},
        }
        room = jax.tree.leaves(table)[0].shape[0]
        key = (room, *((k, v.shape, v.dtype) for k, v in given.items()))
        if key not in self._programs:
            self._programs[key] = self._make(PackedRows(given))
        program, inputs, results = self._programs[key]
        table, data = program(key, params, table, inputs.join(given))
        values = results['rows'].split(np.asarray(data))
        part = lambda kind: {k[1]: v for k, v in values.items() if k[0] == kind}
        return table, part(ACT), part(OUT)

    def _make(self, inputs: PackedRows) -> Layouts:
        results: dict[str, PackedRows] = {}

        def function(params, table, data):
            given = inputs.split_on_device(data)
            rows, count = given.pop((ROW,)), given.pop((COUNT,))[0]
            obs = {k[1]: v for k, v in given.items()}
            carry = jax.tree.map(lambda x: x[rows], table)
            carry, acts, outs = self._policy(params, carry, obs, count)
            table = jax.tree.map(lambda x, new: x.at[rows].set(new), table, carry)
            values = {(ACT, k): v for k, v in acts.items()}
            values |= {(OUT, k): v for k, v in outs.items()}
            results['rows'] = PackedRows(values)
            return table, results['rows'].join_on_device(values)

        program = Program('policy', self._compiler, function, (1,), self._placements)
        return Layouts(program, inputs, results)
