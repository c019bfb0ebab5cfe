"""Access: which requests the dashboard answers, and what its page may load.

On the loopback interface every user of this machine may read, but only by a name of
this machine: otherwise a page elsewhere could point its own name here and read along.
On any other interface a token is needed, once in the address, then in a cookie.

What changes something is answered only when the page itself asks for it: browsers say
which page a request comes from, and send JSON to another server only if that agrees.
"""

import hmac
import ipaddress
from urllib.parse import urlencode

from starlette.datastructures import URL, Headers, MutableHeaders, QueryParams
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ['Access', 'is_loopback']

COOKIE = 'dreamer_watch_token'
COOKIE_DAYS = 30
LOCAL_NAMES = ('localhost', '127.0.0.1', '::1')
# No script, style, font or picture from elsewhere, not even by mistake.
SECURITY = {
    'content-security-policy': (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-resource-policy': 'same-origin',
}
NO_TOKEN = (
    'A token is needed: open the address that `dreamer watch` has printed, which ends '
    'in ?token=...\n'
)
FOREIGN = (
    'Changes are made by the page of this dashboard only: its requests have an Origin '
    'that is this server, and are JSON.\n'
)
SAFE_METHODS = ('GET', 'HEAD', 'OPTIONS')
WRONG_NAME = 'This dashboard only answers to localhost. See dreamer watch --help.\n'


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that is bound to `host`."""
    try:
        return host == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """Passes permitted requests on to the dashboard and refuses the others."""

    def __init__(self, app: ASGIApp, token: str | None):
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(HTTPConnection(scope))

        async def send_safely(message: Message) -> None:
            if message['type'] == 'http.response.start':
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                # Asks whether a file has changed: a new version shows at once.
                headers.setdefault('cache-control', 'no-cache')
            await send(message)

        await (refusal or self._app)(scope, receive, send_safely)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        refusal = self._unauthorized(request)
        if refusal or request.scope['method'] in SAFE_METHODS or _is_own(request):
            return refusal
        return PlainTextResponse(FOREIGN, 403)

    def _unauthorized(self, request: HTTPConnection) -> Response | None:
        if self._token is None:
            named = _hostname(request.headers)
            wrong = named not in LOCAL_NAMES
            return PlainTextResponse(WRONG_NAME, 421) if wrong else None
        if self._matches(request.cookies.get(COOKIE, '')):
            return None
        if not self._matches(request.query_params.get('token', '')):
            return PlainTextResponse(NO_TOKEN, 401)
        # Out of the address, so that it stays out of bookmarks and pictures of it.
        response = RedirectResponse(_without_token(request), 303)
        response.set_cookie(
            COOKIE, self._token, COOKIE_DAYS * 86400, httponly=True, samesite='lax'
        )
        return response

    def _matches(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token.encode())


def _hostname(headers: Headers) -> str:
    try:
        return URL(f'http://{headers.get("host", "")}').hostname or ''
    except ValueError:  # such as half of an IPv6 address
        return ''


def _is_own(request: HTTPConnection) -> bool:
    """Whether a request that changes something comes from the page of this server."""
    headers = request.headers
    origin = headers.get('origin', '').partition('://')[2]
    own = origin != '' and origin == headers.get('host', '')
    site = headers.get('sec-fetch-site', 'same-origin')
    kind = headers.get('content-type', '').partition(';')[0].strip()
    return own and site == 'same-origin' and kind == 'application/json'


def _without_token(request: HTTPConnection) -> str:
    query: QueryParams = request.query_params
    rest = urlencode([(k, v) for k, v in query.multi_items() if k != 'token'])
    # Two slashes at the start would be an address elsewhere.
    path = '/' + request.url.path.lstrip('/')
    return f'{path}?{rest}' if rest else path
