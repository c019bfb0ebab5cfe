"""The hub of Hugging Face: bundles that are fetched from there, and pushed to there.

`hf:owner/name` or `hf:owner/name@revision` stands for the folder that the hub's own
library keeps of it. Only the files of a bundle are fetched, and none of them is code.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from embodied.core.errors import CheckpointError, ConfigError
from embodied.envs import extras

from . import bundle

__all__ = ['PREFIX', 'check_push', 'locate', 'push', 'results_folder']

PREFIX = 'hf:'
PACKAGE, EXTRA = 'huggingface_hub', 'hub'
LIBRARY = 'dreamer-parallel'  # as which the hub counts its downloads
# What may be in a repository that a bundle goes to, besides the files of a bundle.
HARMLESS = ('.gitattributes', 'README.md')
PICTURES = ('*.gif', '*.mp4', '*.png')
LOGIN = 'Log in with `hf auth login`, or set HF_TOKEN'


class Repository(NamedTuple):
    name: str  # owner/name
    revision: str | None  # a branch, tag or commit

    @classmethod
    def parse(cls, source: str) -> 'Repository':
        name, at, revision = (
            source.removeprefix(PREFIX).removeprefix('//').partition('@')
        )
        owner, slash, rest = name.partition('/')
        named = owner and slash and rest and '/' not in rest
        if not named or (at and not revision):
            raise ConfigError(
                f"'{source}' names no repository of the hub. Use hf:owner/name, or "
                'hf:owner/name@revision.'
            )
        return cls(name, revision or None)


def locate(source: str | os.PathLike) -> Path:
    """The folder that a path, or a repository of the hub, stands for."""
    if not _is_remote(source):
        return Path(source).expanduser()
    repository = Repository.parse(str(source))
    hub = extras.require(PACKAGE, EXTRA)
    with _explained(repository.name):
        folder = Path(
            hub.snapshot_download(
                repository.name,
                revision=repository.revision,
                allow_patterns=list(bundle.FILES),
                library_name=LIBRARY,
            )
        )
    if not bundle.is_bundle(folder):
        raise CheckpointError(
            f'The repository {repository.name} holds no agent of `dreamer export`: '
            f'there is no {bundle.AGENT} in it. `dreamer export LOGDIR OUT --push '
            'owner/name` puts one there.'
        )
    return folder


def results_folder(source: str | os.PathLike) -> Path:
    """Where scores and films of an agent go: to it, or here if it is on the hub."""
    if not _is_remote(source):
        return Path(source).expanduser()
    return Path(Repository.parse(str(source)).name.partition('/')[2])


def check_push(name: str, private: bool = False) -> None:
    """Raises what would keep `push` from working, before anything is written."""
    Repository.parse(name)
    hub = extras.require(PACKAGE, EXTRA)
    api = hub.HfApi(library_name=LIBRARY)
    with _explained(name):
        api.whoami()
        if not api.repo_exists(name):
            return
        api.auth_check(name, write=True)
        files = api.list_repo_files(name)
        is_public = not api.model_info(name).private
    others = [x for x in files if x not in {*HARMLESS, *bundle.FILES}]
    if others and bundle.AGENT not in files:
        raise ConfigError(
            f'The repository {name} exists and holds something else than an agent of '
            f'`dreamer export`, such as {others[0]}. Push to another name.'
        )
    if private and is_public:
        raise ConfigError(
            f'The repository {name} exists and is public; --private is for new ones. '
            'Make it private in its settings on the hub first, or push to another name.'
        )


def push(folder: Path, name: str, private: bool = False) -> str:
    """Uploads a bundle, as a new version if there is one; returns its address."""
    hub = extras.require(PACKAGE, EXTRA)
    api = hub.HfApi(library_name=LIBRARY)
    try:
        with _explained(name):
            address = api.create_repo(name, private=private or None, exist_ok=True)
            api.upload_folder(
                repo_id=name,
                folder_path=folder,
                allow_patterns=[*bundle.FILES, *PICTURES],
                commit_message=f'Agent of {LIBRARY}',
            )
    except ConfigError as error:
        raise ConfigError(
            f'{error} The bundle is in {folder}; `hf upload {name} {folder}` pushes it '
            'later.'
        ) from error
    return str(address)


def _is_remote(source: str | os.PathLike) -> bool:
    return isinstance(source, str) and source.startswith(PREFIX)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of the library as one message that says what to do."""
    errors = importlib.import_module(f'{PACKAGE}.errors')
    place = importlib.import_module(f'{PACKAGE}.constants').ENDPOINT
    try:
        yield
    except errors.HFValidationError as error:
        raise ConfigError(f"'{name}' is no name of a repository: {error}") from error
    except errors.LocalTokenNotFoundError as error:
        raise ConfigError(f'You are not logged in to {place}. {LOGIN}.') from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(
            f'The repository {name} has no such revision. {place}/{name}/commits/main '
            'lists its versions.'
        ) from error
    except errors.GatedRepoError as error:
        raise ConfigError(
            f'The owner of {name} decides who may read it: ask for it at '
            f'{place}/{name}. {LOGIN}.'
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f'There is no repository {name} at {place}, or you may not see it. Check '
            f'the name; if it is private: {LOGIN}.'
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise ConfigError(
            f'{place} cannot be reached, and {name} is not among what was downloaded '
            'before. Go online once, or check HF_ENDPOINT, HF_HUB_OFFLINE and HF_HOME.'
        ) from error
    except errors.HfHubHTTPError as error:
        raise ConfigError(_refused(name, place, error)) from error
    # Of files, of the card's metadata, and of servers that answer something else.
    except (RuntimeError, ValueError, errors.FileMetadataError) as error:
        text = ' '.join(f'{error} {error.__cause__ or ""}'.split())
        raise ConfigError(
            f'What was asked of {place} for {name} failed: {text}'
        ) from error
    except (errors.OfflineModeIsEnabled, errors.HTTPError) as error:
        raise ConfigError(
            f'{place} cannot be reached: {error}. Check the connection, HF_ENDPOINT '
            'and HF_HUB_OFFLINE.'
        ) from error


def _refused(name: str, place: str, error: Any) -> str:
    code = error.response.status_code
    said = error.server_message or str(error).splitlines()[0]
    if code == 401:
        return f'{place} does not accept your token: {said}. {LOGIN} to a valid one.'
    if code == 403:
        return (
            f'You may not write to {name}: it belongs to another user or organization, '
            'or your token only reads. Push to a name of yours, or use a token that '
            f'writes. {place} says: {said}'
        )
    return f'{place} refused what was asked of {name} ({code}): {said}'
