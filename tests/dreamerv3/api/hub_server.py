"""A server that speaks the part of the hub's protocol that uploads and downloads need.

Repositories are kept in memory, each as a list of commits {path: bytes}. Large files
travel by git-lfs, small ones within the commit, as the hub decides by .gitattributes.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ruamel.yaml import YAML

__all__ = ['Hub', 'serve']

USERS = {'token-of-ann': ('ann', ['robots']), 'token-of-bob': ('bob', [])}
LFS = ('.safetensors', '.zip')
LICENSES = ('mit', 'apache-2.0', 'cc-by-4.0')


class Hub:
    """What is on it, and what it was asked."""

    def __init__(self):
        self.repos = {}
        self.private = set()
        self.objects = {}  # of git-lfs
        self.requests = []
        self.address = ''

    def commit(self, repo, files):
        commits = self.repos[repo]
        commits.append({**(commits[-1] if commits else {}), **files})
        return commit_id(repo, len(commits))

    def snapshot(self, repo, revision):
        """Commit and files of a branch or commit; None if there is no such revision."""
        commits = self.repos[repo]
        names = {commit_id(repo, i): i for i in range(1, len(commits) + 1)}
        number = len(commits) if revision in ('main', None) else names.get(revision)
        if number is None:
            return None
        return commit_id(repo, number), commits[number - 1] if number else {}


def commit_id(repo, number):
    return hashlib.sha1(f'{repo} {number}'.encode()).hexdigest()


@contextlib.contextmanager
def serve():
    """A hub at `hub.address`, as long as the block lasts."""
    hub = Hub()
    handler = type('BoundHandler', (Handler,), {'hub': hub})
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        hub.address = f'http://127.0.0.1:{server.server_port}'
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class Failure(Exception):
    def __init__(self, status, message, code=None):
        self.status, self.message, self.code = status, message, code


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer()

    do_POST = do_PUT = do_HEAD = do_GET

    def answer(self):
        self.body = self.read_body()
        path, _, self.query = self.path.partition('?')
        self.hub.requests.append((self.command, path))
        try:
            for method, pattern, function in ROUTES:
                match = re.fullmatch(pattern, path)
                if match and self.command in method:
                    return function(self, *match.groups())
            raise Failure(404, f'no route for {self.command} {path}')
        except Failure as failure:
            headers = {'X-Error-Message': failure.message}
            if failure.code:
                headers['X-Error-Code'] = failure.code
            self.reply({'error': failure.message}, failure.status, headers)

    def read_body(self):
        if self.headers.get('Transfer-Encoding') != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length') or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b''.join(parts)

    def reply(self, data, status=200, headers=()):
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        fields = {'Content-Length': len(content), **dict(headers)}
        for name, value in fields.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)

    # Who may do what

    @property
    def user(self):
        token = self.headers.get('Authorization', '').removeprefix('Bearer ')
        if token and token not in USERS:
            raise Failure(401, 'Invalid credentials in Authorization header')
        return USERS.get(token, (None, []))

    def check_write(self, owner):
        name, organizations = self.user
        if name is None:
            raise Failure(401, 'Invalid username or password.')
        if owner not in (name, *organizations):
            raise Failure(403, f"You don't have the rights to write as {owner}")

    def check_read(self, repo):
        owner = repo.partition('/')[0]
        name, organizations = self.user
        hidden = repo in self.hub.private and owner not in (name, *organizations)
        if repo not in self.hub.repos or hidden:
            # The hub does not tell strangers what exists.
            status = 404 if name else 401
            raise Failure(status, 'Repository not found', 'RepoNotFound')

    # Answers

    def whoami(self):
        name, organizations = self.user
        if name is None:
            raise Failure(401, 'Invalid username or password.')
        orgs = [{'name': x} for x in organizations]
        self.reply({'type': 'user', 'name': name, 'orgs': orgs})

    def create(self):
        asked = json.loads(self.body)
        owner = asked['organization'] or self.user[0]
        self.check_write(owner)
        repo = f'{owner}/{asked["name"]}'
        address = {'url': f'{self.hub.address}/{repo}'}
        if repo in self.hub.repos:
            message = 'You already created this model repo'
            return self.reply({'error': message, **address}, 409)
        self.hub.repos[repo] = []
        if asked.get('visibility') == 'private' or asked.get('private'):
            self.hub.private.add(repo)
        self.hub.commit(repo, {'.gitattributes': b'*.safetensors filter=lfs\n'})
        return self.reply(address)

    def info(self, repo, revision=None):
        sha, files = self.find(repo, revision)
        siblings = [{'rfilename': name} for name in files]
        about = {'id': repo, 'sha': sha, 'siblings': siblings, 'tags': []}
        self.reply({**about, 'private': repo in self.hub.private})

    def auth_check(self, repo, write):
        self.check_read(repo)
        if write:
            self.check_write(repo.partition('/')[0])
        self.reply({})

    def tree(self, repo, revision):
        _, files = self.find(repo, revision)
        self.reply([describe(name, data) for name, data in files.items()])

    def validate(self):
        content = json.loads(self.body)['content']
        _, _, rest = content.partition('---\n')
        about = YAML(typ='safe').load(rest.partition('---\n')[0])
        if about.get('license', 'mit') not in LICENSES:
            text = f'"license" must be one of {", ".join(LICENSES)}'
            return self.reply({'errors': [{'message': text}]}, 400)
        return self.reply({'errors': [], 'warnings': []})

    def preupload(self, repo, revision):
        self.check_read(repo)
        self.check_write(repo.partition('/')[0])
        files = [
            {
                'path': x['path'],
                'uploadMode': 'lfs' if x['path'].endswith(LFS) else 'regular',
                'shouldIgnore': False,
            }
            for x in json.loads(self.body)['files']
        ]
        self.reply({'files': files})

    def lfs_batch(self, repo):
        self.check_write(repo.partition('/')[0])
        objects = []
        for item in json.loads(self.body)['objects']:
            answer = {'oid': item['oid'], 'size': item['size']}
            if item['oid'] not in self.hub.objects:
                href = f'{self.hub.address}/objects/{item["oid"]}'
                answer['actions'] = {'upload': {'href': href}}
            objects.append(answer)
        self.reply({'transfer': 'basic', 'objects': objects})

    def put_object(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Failure(400, 'not the content that was announced')
        self.hub.objects[oid] = self.body
        self.reply({})

    def add_commit(self, repo, revision):
        self.check_read(repo)
        self.check_write(repo.partition('/')[0])
        files = {}
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item['value']
            if item['key'] == 'file':
                files[value['path']] = base64.b64decode(value['content'])
            elif item['key'] == 'lfsFile':
                files[value['path']] = self.hub.objects[value['oid']]
        sha = self.hub.commit(repo, files)
        url = f'{self.hub.address}/{repo}/commit/{sha}'
        self.reply({'success': True, 'commitUrl': url, 'commitOid': sha})

    def download(self, repo, revision, name):
        sha, files = self.find(repo, revision)
        if name not in files:
            raise Failure(404, 'Entry not found', 'EntryNotFound')
        etag = describe(name, files[name])
        etag = etag['lfs']['oid'] if 'lfs' in etag else etag['oid']
        headers = {'X-Repo-Commit': sha, 'ETag': f'"{etag}"', 'Accept-Ranges': 'none'}
        self.reply(files[name], headers=headers)

    def find(self, repo, revision):
        self.check_read(repo)
        found = self.hub.snapshot(repo, revision)
        if found is None:
            raise Failure(404, 'Invalid rev id', 'RevisionNotFound')
        return found


def describe(name, data):
    """As the hub lists a file."""
    blob = hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()
    about = {'type': 'file', 'path': name, 'size': len(data), 'oid': blob}
    if name.endswith(LFS):
        oid = hashlib.sha256(data).hexdigest()
        about['lfs'] = {'oid': oid, 'size': len(data), 'pointerSize': 130}
    return about


REPO, REVISION = r'([^/]+/[^/]+)', r'([^/]+)'
MODEL = f'/api/models/{REPO}'
ROUTES = (
    (('GET',), '/api/whoami-v2', Handler.whoami),
    (('POST',), '/api/repos/create', Handler.create),
    (('POST',), '/api/validate-yaml', Handler.validate),
    (('GET',), f'{MODEL}/auth-check(/write)?', Handler.auth_check),
    (('GET',), MODEL, Handler.info),
    (('GET',), f'{MODEL}/revision/{REVISION}', Handler.info),
    (('GET',), f'{MODEL}/tree/{REVISION}', Handler.tree),
    (('POST',), f'{MODEL}/preupload/{REVISION}', Handler.preupload),
    (('POST',), f'{MODEL}/commit/{REVISION}', Handler.add_commit),
    (('POST',), rf'/{REPO}\.git/info/lfs/objects/batch', Handler.lfs_batch),
    (('PUT',), '/objects/([0-9a-f]+)', Handler.put_object),
    (('GET', 'HEAD'), f'/{REPO}/resolve/{REVISION}/(.+)', Handler.download),
)
