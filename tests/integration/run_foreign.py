"""A script of a user: `python run_foreign.py LOGDIR DOOR [--key value ...]`."""

import functools
import sys

import elements
import foreign

import embodied

bind = functools.partial


def main():
    logdir, door, *flags = sys.argv[1:]
    defaults = foreign.make_args(logdir, at=0, block=False, wait=False)
    args = elements.Flags(defaults).parse(flags)
    make_agent = bind(foreign.Agent, args.at, foreign.Knock(door, args.wait))
    if args.block:
        make_agent = bind(foreign.make_blocking_agent, door)
    on_close = foreign.Knock(door) if args.wait else None
    embodied.run.parallel.combined(
        make_agent,
        foreign.Replay,
        foreign.Replay,
        bind(foreign.Env, on_close=on_close),
        foreign.Env,
        foreign.make_stream,
        bind(foreign.make_logger, logdir),
        args,
    )


if __name__ == '__main__':
    main()
