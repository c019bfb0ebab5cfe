"""The same with the real agent: `python fault_real.py LOGDIR [flags of dreamer]`."""

import functools
import sys

import fault_parts

from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.main import loop_args
from embodied.run import parallel


def make_replay(config):
    return fault_parts.audited(factories.make_replay(config, 'replay'), config.logdir)


def main():
    logdir, *flags = sys.argv[1:]
    flags = ['--script', 'parallel', '--configs', 'tiny', 'debug', *flags]
    # Nothing may be evicted: all of it is looked for in the end.
    flags += ['--replay.size', '1e6', '--logger.outputs', 'jsonl', '--logdir', logdir]
    config, _ = config_lib.resolve(flags)
    bind = functools.partial
    parallel.combined(
        bind(factories.make_agent, config),
        bind(make_replay, config),
        bind(factories.make_replay, config, 'eval_replay', mode='eval'),
        bind(factories.make_env, config),
        bind(factories.make_env, config, mode='eval'),
        bind(factories.make_stream, config),
        bind(factories.make_logger, config),
        loop_args(config),
    )


if __name__ == '__main__':
    # As a module of its own, so that roles can import what they are given.
    import fault_real

    fault_real.main()
