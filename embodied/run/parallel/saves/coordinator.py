"""Saves: brings the saves of agent, replay and logger together under one manifest."""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ....core.checkpoint import Checkpoint
from ....logging import add_event
from ....transport import Future, Timeout, TransportError
from ...shared.outcome import Outcome
from ..settings import ParallelSettings
from ..supervision.health import SAVING, health
from .manifest import Manifest

__all__ = ['RoleSaves', 'Saves', 'open_checkpoint']

AGENT, PEERS = 'agent', ('replay', 'logger')
# Seconds that replay and logger have to save before the agent does so without them: one
# that has died and comes back must not cost the agent what it has learned.
PATIENCE = 10.0


def open_checkpoint(settings: ParallelSettings, role: str) -> Checkpoint:
    """Checkpoint of one role. What the manifest names is never removed."""
    folder = settings.checkpoints
    note = functools.partial(add_event, settings.logdir)
    named = lambda: Manifest.read(folder).saves.get(role)
    checkpoint = Checkpoint(folder / role, settings.keep, named, note, settings.trust)
    if role == AGENT:  # which alone writes the manifest
        manifest = Manifest.recover(folder, note)
        if role in manifest.saves and not checkpoint.exists():
            raise manifest.lacks_agent(folder)
    return checkpoint


class SavedRole(Protocol):
    """A role with something to save."""

    @property
    def steps(self) -> int: ...

    @property
    def counters(self) -> dict[str, int]: ...

    def save(self) -> Any: ...

    def load(self, data: Any) -> None: ...


class RoleSaves:
    """Saves of replay or logger, which the learner tells when; any thread may call.

    The newest is loaded at once. A save that could not be made leaves the one before
    it as it is, and the role goes on: the learner hears of it, and asks again.
    """

    def __init__(self, name: str, role: SavedRole, settings: ParallelSettings):
        self._role = role
        self._lock = threading.Lock()
        self._checkpoint = open_checkpoint(settings, name)
        self._checkpoint.add(name, role)
        if self._checkpoint.exists():
            self._checkpoint.load()

    def save(self) -> dict[str, Any]:
        """Returns when it is on the disk: the version, and the counters in it."""
        with self._lock, health().busy(SAVING):
            counters = self._role.counters
            self._checkpoint.save(self._role.steps)
            self._checkpoint.wait()
            return {'version': self._checkpoint.version, 'counters': counters}


class Saves:
    """Saves of the whole run: first replay and logger, then the agent, whose save is
    the one that counts, last the manifest.

    A role that cannot save, the agent included, keeps its last whole save: it stays in
    the manifest, and the next save tries again. Only the last save of the agent raises.

    ask: tells a role to save; its answer to come. counters: those of the agent.
    lost: whether a role has gone for good, so that no answer can be waited for.
    note: writes an event.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        folder: Path,
        ask: Callable[[str], Future],
        counters: Callable[[], Mapping[str, int]],
        lost: Callable[[str], bool] = lambda role: False,
        note: Callable[..., Any] = lambda event, **details: None,
    ):
        self._checkpoint = checkpoint
        self._folder = folder
        self._ask = ask
        self._counters = counters
        self._lost = lost
        self._note_event = note
        self._asked: dict[str, Future] = {}  # whose answers were not taken yet
        self._deadline: float | None = None  # for them, when a save has begun
        manifest = Manifest.read(folder)
        self._saves, self._counts = dict(manifest.saves), dict(manifest.counters)

    @property
    def busy(self) -> bool:
        """Whether a save has begun that is not on the disk yet."""
        return self._deadline is not None or self._checkpoint.busy

    def begin(self) -> None:
        """Tells the others to save; the agent follows by `advance`."""
        self._take_answers()
        for role in PEERS:
            if role not in self._asked:  # A late answer is good for the next save.
                self._asked[role] = self._ask(role)
        self._deadline = time.monotonic() + PATIENCE

    def advance(self, step: int) -> None:
        """Saves the agent if the others have done so or took too long; never waits."""
        self._take_failure()
        if self._deadline is None:
            return
        self._take_answers()
        if not self._asked or time.monotonic() > self._deadline:
            self.save_agent(step)

    def await_peers(self) -> int:
        """Has the others save and waits for them: the steps that replay holds, as far
        as it answers. For the last save, which `save_agent` ends."""
        self._take_answers(PATIENCE / 2)  # to a save before, which knows less
        self.begin()
        for role in self._take_answers(PATIENCE / 2):
            print(f'The {role} does not answer and may not have been saved.')
        return self._counts.get('steps', 0)

    def save_agent(self, step: int, reason: str = '') -> None:
        """Writes the agent, and the manifest after it, in the background.

        reason: why the run ends, if this is its last save.
        """
        self._deadline = None
        self._checkpoint.join()
        self._take_failure()
        ended = bool(reason), *(Outcome.of(reason) if reason else ('', ''))
        self._counts.update(self._counters())
        saves, counts = dict(self._saves), dict(self._counts)
        manifest = lambda agent: Manifest({**saves, AGENT: agent}, counts, *ended)
        self._checkpoint.save(step, lambda version: self._note(manifest(version)))

    def _take_answers(self, timeout: float = 0.0) -> list[str]:
        """Takes note of the saves that were made: the roles that did not answer."""
        deadline = time.monotonic() + timeout
        for role in list(self._asked):
            left = 0.0 if self._lost(role) else max(0.0, deadline - time.monotonic())
            try:
                answer = self._asked[role].result(left)
            except Timeout:
                continue
            except TransportError as error:
                del self._asked[role]
                self._tell_failure(role, error)
                continue
            del self._asked[role]
            self._saves[role] = str(answer['version'])
            # Numbers come as arrays over portal.
            self._counts.update({k: int(v) for k, v in answer['counters'].items()})
        return list(self._asked)

    def _take_failure(self) -> None:
        """Hears of a save of the agent that has failed in the background."""
        error = self._checkpoint.take_error()
        if error is not None:
            self._tell_failure(AGENT, error)

    def _tell_failure(self, role: str, error: Exception) -> None:
        first, *_ = str(error).splitlines() or ['']
        self._note_event('save_failed', role=role, reason=first)
        print(f'The {role} could not be saved and goes on with its last save: {first}')

    def _note(self, manifest: Manifest) -> None:
        manifest.write(self._folder)
        health().has_saved()
