"""Peers: the learner's connections to replay and logger."""

from typing import Any

from ...transport import ClientInterface, Disconnected, Timeout
from .fetcher import Fetcher
from .links import await_server, make_client
from .outbox import LOG_QUEUE, Outbox
from .settings import ParallelSettings

__all__ = ['Peers']

REPORTS_AHEAD = 1  # batches; reports are rare
FAREWELL = 5.0  # seconds for a peer to take the last messages


class Peers:
    """Batches come in through three streams; latents and metrics go out without making
    training wait. Each has a connection of its own, so that none waits for another."""

    def __init__(self, settings: ParallelSettings):
        self._addr = settings.replay_addr
        connect = lambda addr, what: make_client(addr, f'learner {what}', settings)
        fetch = lambda client, method, ahead: Fetcher(
            client, method, ahead, settings.batch_size
        )
        self._batches = connect(self._addr, 'batches')
        self.train = fetch(self._batches, 'sample_batch_train', settings.prefetch)
        client = connect(self._addr, 'reports')
        self.report = fetch(client, 'sample_batch_report', REPORTS_AHEAD)
        client = connect(self._addr, 'eval reports')
        self.evaluation = fetch(client, 'sample_batch_eval', REPORTS_AHEAD)
        self._replay = connect(self._addr, 'updates')
        self.updates = Outbox(
            self._replay, 'update', settings.update_queue, wait=settings.deterministic
        )
        self._logger = connect(settings.logger_addr, 'metrics')
        self.log = Outbox(self._logger, 'add', LOG_QUEUE)

    def start(self, trained: int) -> None:
        """Asks for the first batches, however late replay is started; `trained`
        sequences were trained on in earlier sessions."""
        for stream in (self.train, self.report, self.evaluation):
            stream.start(trained)
        try:
            await_server(self._batches, 'replay', self._addr)
        except Disconnected:
            if not self.train.ended:  # closed while we waited
                raise

    def finish_replay(self) -> int:
        """Tells replay that the run has ended, after the last update: the steps that
        it holds, 0 if it does not answer."""
        self.updates.flush(FAREWELL)
        answer = self._tell('replay', self._replay)
        return int(answer['steps']) if answer else 0

    def finish_logger(self, steps: int) -> None:
        """Tells the logger that the run has ended, after the last metrics."""
        self.log.flush(FAREWELL)
        self._tell('logger', self._logger, steps)

    def close(self) -> None:
        for part in (self.train, self.report, self.evaluation, self.updates, self.log):
            part.close()

    def _tell(self, name: str, client: ClientInterface, *args: Any) -> Any:
        try:
            return client.call('finish', *args).result(FAREWELL)
        except Timeout:
            print(f'The {name} does not answer and could not be told of the end.')
            return None
