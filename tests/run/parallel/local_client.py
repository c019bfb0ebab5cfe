"""A client without sockets, for tests of classes that are given a client."""

import concurrent.futures
import threading

from embodied.transport import ClientInterface, Disconnected, Future

__all__ = ['LocalClient']


class LocalClient(ClientInterface):
    """Calls functions of this process, each of them in a thread of its own.

    As with a server, calls of one method are answered in order, and closing ends all
    waiting calls.
    """

    connected = True

    def __init__(self, methods):
        self._methods = methods
        self._threads = {
            name: concurrent.futures.ThreadPoolExecutor(1, name) for name in methods
        }
        self._change = threading.Condition()  # of futures
        self._waiting = set()
        self._closed = False

    def connect(self, timeout=None):
        pass

    def call(self, method, *args, rows=0):
        future = Future(self)
        with self._change:
            if self._closed:
                future.complete(None, Disconnected('This client is closed.'))
                return future
            self._waiting.add(future)
        self._threads[method].submit(self._run, future, method, args)
        return future

    def close(self):
        with self._change:
            self._closed = True
            waiting = list(self._waiting)
        for future in waiting:
            self._complete(future, None, Disconnected('This client is closed.'))
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    # What futures need.

    def wait(self, future, timeout):
        with self._change:
            self._change.wait_for(future.is_complete, timeout)

    def watch(self, future, fn):
        with self._change:
            if not future.is_complete():
                future.callbacks = (*future.callbacks, fn)
                return True
            return False

    def dropped(self, error):
        pass

    def _run(self, future, method, args):
        try:
            self._complete(future, self._methods[method](*args))
        except Exception as error:  # noqa: BLE001 (raised by `result`)
            self._complete(future, None, error)

    def _complete(self, future, value, error=None):
        with self._change:
            if future.is_complete():
                return
            future.complete(value, error)
            self._waiting.discard(future)
            self._change.notify_all()
        for fn in future.callbacks:
            fn(future)
