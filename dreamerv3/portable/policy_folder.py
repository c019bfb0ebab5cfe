"""The folder of an exported policy: the archive, its player and README."""

import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied.core.errors import ConfigError, DreamerError
from embodied.envs.wrapping import describe_interface

from .. import config as config_lib
from .. import factories
from ..api.evaluate import refuse_other_spaces
from ..api.loaded import LoadedAgent, load, load_player
from .archive import ARCHIVE, describe_policy, write_archive
from .readme import write_readme

__all__ = ['ONNX', 'STABLEHLO', 'export_policy']

STABLEHLO, ONNX = 'stablehlo', 'onnx'
PLAYER, README = 'player.py', 'README.md'
DTYPE, FLOAT32 = 'jax.compute_dtype', 'float32'
ADVICE = (
    'The environment tells what the actions of the policy mean in its own units. Name '
    'one that can be made here with --task, or export without with --no-env: then '
    'continuous actions stay in -1..1.'
)


def export_policy(
    source: str,
    out: Path,
    form: str,
    flags: Sequence[str],
    trust: bool,
    with_env: bool = True,
    batch: int = 1,
) -> str:
    """Writes policy.zip, player.py and README.md; returns what to say about them.

    source: as of `dreamerv3.load`. form: STABLEHLO or ONNX. flags: options of the run
    that change. with_env: makes the environment to describe it. batch: rows of ONNX.
    """
    if form == ONNX:  # onnxruntime has no bfloat16 on most processors
        if config_lib.parse_flags(flags).get(DTYPE, [FLOAT32]) != [FLOAT32]:
            raise ConfigError(
                f'--format onnx computes in float32. Leave --{DTYPE} out, or use '
                '--format stablehlo.'
            )
        flags = [*flags, f'--{DTYPE}={FLOAT32}']
    agent = (load_player if with_env else load)(source, flags, trust)
    about = describe_policy(agent, _describe_env(agent) if with_env else None)
    archive = io.BytesIO()
    if form == ONNX:
        from .onnx_graph import compare_onnx, export_onnx

        more, entries = export_onnx(agent, batch)
        about |= more
        write_archive(archive, agent.config, about, entries)
        far = compare_onnx(agent, archive, batch)
        note = f'; it acts as the agent does, up to {far:.1g}'
    else:
        from .stablehlo import export_stablehlo

        more, entries = export_stablehlo(agent)
        about |= more
        write_archive(archive, agent.config, about, entries)
        note = ''
    out.mkdir(parents=True, exist_ok=True)
    (out / ARCHIVE).write_bytes(archive.getbuffer())
    shutil.copyfile(Path(__file__).with_name(PLAYER), out / PLAYER)
    (out / README).write_text(write_readme(about))
    size = len(archive.getbuffer()) / 1e6
    return f'{out}: policy of step {agent.step:,}, {size:.1f} MB{note}'


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
