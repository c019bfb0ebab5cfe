"""Connections of the learner to replay and logger."""

from typing import Any

from ....transport import ClientInterface, Disconnected, Future, Timeout
from ..context import RoleContext
from ..outbox import LOG_QUEUE, Outbox
from ..protocol import SAVE
from ..timeouts import LAST_MESSAGES, LATENTS_WAIT
from .fetcher import Fetcher

__all__ = ['Connections']

REPORTS_AHEAD = 1  # batches; reports are rare


class Connections:
    """Three streams of batches come in; latents and metrics go out.

    Latents go out as fast as replay takes them, metrics without delaying training.
    Each has a connection of its own, so that none waits for another.
    """

    def __init__(self, context: RoleContext):
        settings = context.settings
        self._context = context
        self._batches = self._to_replay('batches')
        ahead = settings.prefetch - settings.moves_ahead
        self.train = self._fetcher(self._batches, 'sample_batch_train', ahead)
        reports = self._to_replay('reports')
        self.report = self._fetcher(reports, 'sample_batch_report', REPORTS_AHEAD)
        reports = self._to_replay('eval reports')
        self.evaluation = self._fetcher(reports, 'sample_batch_eval', REPORTS_AHEAD)
        replay = self._to_replay('updates')
        self.updates = Outbox(
            replay,
            'update',
            settings.update_queue,
            wait=settings.deterministic,
            patience=LATENTS_WAIT,
        )
        logger = context.make_client(settings.logger_addr, 'learner metrics')
        self.log = Outbox(logger, 'add', LOG_QUEUE)
        self._clients = {'replay': replay, 'logger': logger}

    def start(self, trained: int) -> None:
        """Requests the first batches, and waits until replay is there.

        trained: sequences that the run has trained on before.
        """
        self.train.start(trained)
        self.report.start()
        self.evaluation.start()
        try:
            addr = self._context.settings.replay_addr
            self._context.await_server(self._batches, 'replay', addr)
        except Disconnected:
            if not self.train.ended:  # closed by `interrupt`
                raise

    def interrupt(self, reports: bool) -> None:
        """Frees a learner that waits for a replay that may not answer.

        Ends the stream of training batches, and with `reports` those for reports, and
        no longer waits for room for latents.
        """
        self.train.close()
        self.updates.stop_waiting()
        if reports:
            self.report.close()
            self.evaluation.close()

    def ask_to_save(self, role: str) -> Future:
        """Asks replay or logger to save, after what was sent before; its answer."""
        return self._clients[role].call(SAVE)

    def finish(self, steps: int) -> None:
        """Tells replay and logger that the run has ended after so many steps."""
        self._finish('replay', self.updates)
        self._finish('logger', self.log, steps)

    def close(self) -> None:
        for part in (self.train, self.report, self.evaluation, self.updates, self.log):
            part.close()

    def _to_replay(self, purpose: str) -> ClientInterface:
        addr = self._context.settings.replay_addr
        return self._context.make_client(addr, f'learner {purpose}')

    def _fetcher(self, client: ClientInterface, method: str, ahead: int) -> Fetcher:
        return Fetcher(client, method, ahead, self._context.settings.batch_size)

    def _finish(self, role: str, outbox: Outbox, *args: Any) -> None:
        """Sends the last messages to a role that has not ended."""
        if self._context.health.is_gone(role):
            return
        if not outbox.flush(LAST_MESSAGES):
            print(f'The {role} does not answer: the last messages to it are lost.')
        try:
            self._clients[role].call('finish', *args).result(LAST_MESSAGES)
        except Timeout:
            print(f'The {role} does not answer and does not know of the end.')
