"""A vector environment for tests, made of single environments that step together."""

import elements
import numpy as np

import embodied

BEGIN = {'reset': np.bool_(True)}


class Together(embodied.VectorEnv):
    """Members are `makes()`. final: those whose episode ends begin the next one in
    the same step, so that their last rows come beside the others.

    `steps` counts calls.
    """

    def __init__(self, makes, final=False):
        self._envs = [make() for make in makes]
        self.num = len(self._envs)
        self._final = final
        self.steps = 0
        self.closed = False
        self._zeros = {k: np.zeros(v.shape, v.dtype) for k, v in self.act_space.items()}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._envs[0].obs_space

    @property
    def act_space(self) -> dict[str, elements.Space]:
        return self._envs[0].act_space

    def step(self, actions):
        assert all(len(value) == self.num for value in actions.values())
        self.steps += 1
        rows = [
            env.step({key: value[member] for key, value in actions.items()})
            for member, env in enumerate(self._envs)
        ]
        ended = [member for member, row in enumerate(rows) if row['is_last']]
        if not self._final or not ended:
            return self._stack(rows)
        last = self._stack([rows[member] for member in ended])
        for member in ended:
            rows[member] = self._envs[member].step({**self._zeros, **BEGIN})
        return {**self._stack(rows), 'final': (np.array(ended), last)}

    def close(self):
        self.closed = True

    def _stack(self, rows):
        kinds = {key: space.dtype for key, space in self.obs_space.items()}
        return {k: np.stack([row[k] for row in rows]).astype(kinds[k]) for k in kinds}
