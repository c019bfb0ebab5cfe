"""Export: the policy of a trained agent into a folder, with its player and README."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied.core.errors import ConfigError, DreamerError
from embodied.envs.interface import describe_interface

from .. import factories
from ..api.evaluate import refuse_other_spaces
from ..api.loaded import LoadedAgent, load, load_player
from .archive import ARCHIVE, describe_policy, write_archive
from .programs import export_programs
from .readme import write_readme

__all__ = ['export_policy']

PLAYER, README = 'player.py', 'README.md'
ADVICE = (
    'The environment tells what the actions of the policy mean in its own units. Name '
    'one that can be made here with --task, or export without with --no-env: then '
    'continuous actions stay in -1..1.'
)


def export_policy(
    source: str, out: Path, flags: Sequence[str], trust: bool, with_env: bool
) -> str:
    """Writes policy.zip, player.py and README.md; returns what to say about them.

    source: as of `dreamerv3.load`. flags: options of the run that change. with_env:
    makes the environment to describe it.
    """
    agent = (load_player if with_env else load)(source, flags, trust)
    about = describe_policy(agent, _describe_env(agent) if with_env else None)
    programs = export_programs(agent)
    out.mkdir(parents=True, exist_ok=True)
    write_archive(out / ARCHIVE, about, programs)
    shutil.copyfile(Path(__file__).with_name(PLAYER), out / PLAYER)
    (out / README).write_text(write_readme(about))
    size = (out / ARCHIVE).stat().st_size
    return f'{out}: policy of step {agent.step:,}, {size / 1e6:.1f} MB'


def _describe_env(agent: LoadedAgent) -> Mapping[str, Any]:
    try:
        env = factories.make_env(agent.config, 0, mode='eval', num=1)
    except DreamerError as error:
        raise ConfigError(f'{error} {ADVICE}') from error
    try:
        refuse_other_spaces(agent, env)
        return describe_interface(env)
    finally:
        env.close()
