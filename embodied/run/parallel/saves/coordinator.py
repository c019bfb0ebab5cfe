"""Saves: brings the saves of agent, replay and logger together under one manifest."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ....core.checkpoint import Checkpoint
from ....transport import Future, Timeout, TransportError
from ...shared.outcome import Outcome
from ..context import RoleContext
from ..supervision.health import SAVING
from ..timeouts import WRITERS_ANSWER
from .manifest import Manifest

__all__ = ['RoleSaves', 'Saves', 'open_checkpoint']

AGENT, WRITERS = 'agent', ('replay', 'logger')


def open_checkpoint(context: RoleContext, role: str) -> Checkpoint:
    """Checkpoint of one role. What the manifest names is never removed."""
    settings, note = context.settings, context.note
    folder = settings.checkpoints
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
    """Saves of replay or logger, made when the learner asks. Thread-safe.

    The newest save is loaded at once. A save that fails leaves the earlier one as it
    is, and the role continues. The learner gets the error and asks again.
    """

    def __init__(self, name: str, role: SavedRole, context: RoleContext):
        self._role = role
        self._lock = threading.Lock()
        self._health = context.health
        self._checkpoint = open_checkpoint(context, name)
        self._checkpoint.add(name, role)
        if self._checkpoint.exists():
            self._checkpoint.load()

    def save(self) -> dict[str, Any]:
        """Blocks until the save is on the disk: its version, and the counters in it."""
        with self._lock, self._health.busy(SAVING):
            counters = self._role.counters
            self._checkpoint.save(self._role.steps)
            self._checkpoint.wait()
            return {'version': self._checkpoint.version, 'counters': counters}


class Saves:
    """Saves of the whole run: first replay and logger, then the agent, whose save is
    the one that counts, last the manifest.

    A role that cannot save, the agent included, keeps its last whole save: it stays in
    the manifest, and the next save tries again. Only the last save of the agent raises.

    ask: asks a role to save, and returns its future answer. counters: of the agent.
    note: writes an event.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ask: Callable[[str], Future],
        counters: Callable[[], Mapping[str, int]],
        note: Callable[..., Any],
        context: RoleContext,
    ):
        self._checkpoint = checkpoint
        self._folder = context.settings.checkpoints
        self._ask = ask
        self._counters = counters
        self._health = context.health
        self._note_event = note
        self._asked: dict[str, Future] = {}  # whose answers were not taken yet
        self._deadline: float | None = None  # for them, when a save has begun
        manifest = Manifest.read(self._folder)
        self._saves, self._counts = dict(manifest.saves), dict(manifest.counters)

    @property
    def busy(self) -> bool:
        """Whether a save has begun that is not on the disk yet."""
        return self._deadline is not None or self._checkpoint.busy

    def begin(self) -> None:
        """Asks replay and logger to save; `advance` saves the agent after them."""
        self._take_answers()
        for role in WRITERS:
            if role not in self._asked:  # A late answer is good for the next save.
                self._asked[role] = self._ask(role)
        self._deadline = time.monotonic() + WRITERS_ANSWER

    def advance(self, step: int) -> None:
        """Saves the agent if the others have saved or are late; never waits."""
        self._take_failure()
        if self._deadline is None:
            return
        self._take_answers()
        if not self._asked or time.monotonic() > self._deadline:
            self.save_agent(step)

    def await_writers(self) -> int:
        """Asks replay and logger to save, and waits: the steps in replay, if known.

        For the last save, which `save_agent` completes.
        """
        self._take_answers(WRITERS_ANSWER / 2)  # to a save before, which knows less
        self.begin()
        for role in self._take_answers(WRITERS_ANSWER / 2):
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
        """Records the saves that were made: the roles that have not answered."""
        deadline = time.monotonic() + timeout
        for role in list(self._asked):
            left = max(0.0, deadline - time.monotonic())
            if self._health.is_gone(role):
                left = 0.0
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
        """Records a save of the agent that has failed in the background."""
        error = self._checkpoint.take_error()
        if error is not None:
            self._tell_failure(AGENT, error)

    def _tell_failure(self, role: str, error: Exception) -> None:
        first, *_ = str(error).splitlines() or ['']
        self._note_event('save_failed', role=role, reason=first)
        print(f'The {role} could not be saved and goes on with its last save: {first}')

    def _note(self, manifest: Manifest) -> None:
        manifest.write(self._folder)
        self._health.has_saved()
