"""Connections: the learner's connections to replay and logger."""

from typing import Any

from ....transport import Disconnected, Future, Timeout
from ..address_book import address_book
from ..context import await_server, make_client
from ..outbox import LOG_QUEUE, Outbox
from ..protocol import SAVE
from ..settings import ParallelSettings
from .fetcher import Fetcher

__all__ = ['Peers']

REPORTS_AHEAD = 1  # batches; reports are rare
FAREWELL = 5.0  # seconds for a peer to take the last messages
# Seconds that training waits for replay to take latents: longer than a slow disk or a
# restart of replay holds them up.
LATENTS_PATIENCE = 20.0


class Peers:
    """Batches come in through three streams. Latents go out as fast as replay takes
    them, metrics without making training wait. Each has a connection of its own, so
    that none waits for another."""

    def __init__(self, settings: ParallelSettings):
        self._addr = settings.replay_addr
        connect = lambda addr, what: make_client(addr, f'learner {what}', settings)
        fetch = lambda client, method, ahead: Fetcher(
            client, method, ahead, settings.batch_size
        )
        self._batches = connect(self._addr, 'batches')
        ahead = settings.prefetch - settings.moves_ahead
        self.train = fetch(self._batches, 'sample_batch_train', ahead)
        client = connect(self._addr, 'reports')
        self.report = fetch(client, 'sample_batch_report', REPORTS_AHEAD)
        client = connect(self._addr, 'eval reports')
        self.evaluation = fetch(client, 'sample_batch_eval', REPORTS_AHEAD)
        replay = connect(self._addr, 'updates')
        self.updates = Outbox(
            replay,
            'update',
            settings.update_queue,
            wait=settings.deterministic,
            patience=LATENTS_PATIENCE,
        )
        logger = connect(settings.logger_addr, 'metrics')
        self.log = Outbox(logger, 'add', LOG_QUEUE)
        self._clients = {'replay': replay, 'logger': logger}

    def start(self, trained: int) -> None:
        """Asks for the first batches, however late replay is started; `trained`
        sequences were trained on in earlier sessions."""
        self.train.start(trained)
        self.report.start()
        self.evaluation.start()
        try:
            await_server(self._batches, 'replay', self._addr)
        except Disconnected:
            if not self.train.ended:  # closed while we waited
                raise

    def interrupt(self, reports: bool) -> None:
        """Ends the stream of training, with `reports` all, and the waiting for room:
        the learner has to go on, whether replay answers or not."""
        self.train.close()
        self.updates.hurry()
        if reports:
            self.report.close()
            self.evaluation.close()

    def ask_to_save(self, role: str) -> Future:
        """Has replay or logger save, after what was sent before: the answer to come."""
        return self._clients[role].call(SAVE)

    def finish(self, steps: int) -> None:
        """Tells replay and logger that the run has ended after so many steps."""
        self._part('replay', self.updates)
        self._part('logger', self.log, steps)

    def close(self) -> None:
        for part in (self.train, self.report, self.evaluation, self.updates, self.log):
            part.close()

    def _part(self, role: str, outbox: Outbox, *args: Any) -> None:
        """Sends the last messages, unless there is nobody to take them."""
        if address_book().has_lost(role):
            return
        if not outbox.flush(FAREWELL):
            print(f'The {role} does not answer: the last messages to it are lost.')
        try:
            self._clients[role].call('finish', *args).result(FAREWELL)
        except Timeout:
            print(f'The {role} does not answer and could not be told of the end.')
