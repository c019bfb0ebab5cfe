"""Threaded server: what servers of every backend have in common."""

import abc
import logging
import threading
from collections.abc import Callable

from .dispatch.batcher import Batcher
from .dispatch.methods import Methods, Task
from .interface import MAX_WAIT, Server, Settings

__all__ = ['ThreadedServer']

log = logging.getLogger(__name__)


class ThreadedServer(Server):
    """One I/O thread, and worker threads for the methods."""

    def __init__(self, name: str, settings: Settings | None) -> None:
        self._name = name
        self._settings = settings or Settings()
        self._methods = Methods(name, self._deliver, self._fail)
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @abc.abstractmethod
    def _open(self) -> None:
        """Begins to listen; raises AddressInUse."""

    @abc.abstractmethod
    def _serve(self) -> None:
        """Blocks until `_stop`, in the I/O thread."""

    @abc.abstractmethod
    def _stop(self) -> None:
        """Ends `_serve`, from any thread."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Ends all connections, in the I/O thread."""

    @abc.abstractmethod
    def _deliver(self, task: Task) -> None:
        """Sends the replies of a task, called by the thread that has run it."""

    def bind(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        self._methods.bind(name, workfn, postfn, workers, once)

    def bind_batched(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        batch: int = 1,
        max_wait: float | Callable[[], float] = MAX_WAIT,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        batcher = Batcher(batch, max_wait)
        self._methods.bind(name, workfn, postfn, workers, once, batcher)

    def start(self, block: bool = True) -> None:
        assert self._thread is None, 'A server starts once.'
        self._open()
        self._methods.start()
        self._thread = threading.Thread(
            target=self._run, name=f'{self._name}-io', daemon=True
        )
        self._thread.start()
        if block:
            self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        closed = self._closed.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return closed

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._methods.close(self._settings.grace)
            self._stop()
            self._thread.join()
        self._closed.set()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as e:  # noqa: BLE001 - raised by `wait`
            log.error('%s stops serving.', self._name, exc_info=e)
            self._fail(e)
        finally:
            self._release()
            self._closed.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._closed.set()
