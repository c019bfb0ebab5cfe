"""Help of the `dreamer` command: the overview, and one page per command."""

from collections.abc import Mapping

from .. import config as config_lib
from . import describe

__all__ = ['OVERVIEW', 'page']

OVERVIEW = """\
usage: dreamer COMMAND [--configs PRESET ...] [--OPTION VALUE ...]

  train        train an agent; the same command continues the run in its --logdir
  train_eval   train, and play evaluation episodes in between
  parallel     train with one process per role: agent, replay, logger, environments
  offline      train from recorded data: --data FOLDER, without environments
  eval_only    play with a trained agent: --run.from_checkpoint FOLDER
  eval         play with a trained agent and print its scores: dreamer eval LOGDIR
  play         watch a trained agent play, in a window or as a video
  export       write a trained agent into a folder: dreamer export LOGDIR OUT; --push to
               the hub; --format stablehlo or onnx for its policy without this package
  import       start a run with the weights of such a folder, or of the reference
  tasks        list the tasks and what they need
  check-env    find what would break training: dreamer check-env my_module:make_env
  sweep        search settings, or train many tasks and seeds: --vary OPTION=A,B
  config       print the options of a command line, or explain them: --describe NAME
  replay       look at the stored experience of a run, or export it
  watch        look at runs in a browser, live
  plot         draw curves of runs into a file, with a table
  status       show how the processes of a distributed run in a folder are doing
  demo         watch an agent learn a small game on this machine, in minutes

  parallel_agent, parallel_replay, parallel_logger, parallel_envs, parallel_env
               one role of a distributed run as a job of its own, in any order
  keys         make the keys that roles on several machines need
  manifests    write a distributed run for Kubernetes: dreamer manifests FOLDER

  dreamer train --configs tiny --task toy_catch --logdir ~/logdir/catch
  dreamer train --configs size12m --task gym_CartPole-v1 --run.envs 8
  dreamer parallel --configs atari size50m --task atari_pong --run.envs 16
  dreamer config --describe train_ratio

`dreamer COMMAND --help` explains one command, `dreamer --version` names the version.
--quiet prints errors only; NO_COLOR=1 leaves colors away. --trust lets a run go on in
a folder of others although that runs code from its checkpoints.
Presets are applied from left to right, then the options. An option's name may be a
pattern: --.*\\.units 64.
"""

COMMON = ('task', 'logdir', 'seed', 'jax.platform', 'quiet')
LENGTH = ('run.steps', 'run.duration', 'run.train_ratio', 'run.envs')
OFFLINE = ('run.updates', 'run.duration')
EVALUATION = ('run.eval_envs', 'run.eval_eps', 'run.eval_every')
ADDRESSES = ('run.actor_addr', 'run.replay_addr', 'run.logger_addr')
WORKERS = ('run.envs', 'run.eval_envs', 'run.envs_per_worker', 'run.first_env')

# Of each command: what it does, the options that matter most, an example.
PAGES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    'train': (
        'Trains an agent in this process; environments have processes of their own.\n'
        'The same command continues the run in its --logdir.',
        (*COMMON, *LENGTH, 'run.save_every', 'run.from_checkpoint'),
        '--configs tiny --task toy_catch --logdir ~/logdir/catch --run.steps 20000',
    ),
    'train_eval': (
        'Trains an agent and plays evaluation episodes in between. Their scores are\n'
        'logged as eval/score.',
        (*COMMON, *LENGTH, *EVALUATION),
        '--configs tiny cartpole --logdir ~/logdir/cartpole',
    ),
    'offline': (
        'Trains an agent from recorded data: folders of runs, replays and npz files,\n'
        'datasets of Minari. With a --task it plays evaluation episodes in between.\n'
        'The same command continues the run in its --logdir.',
        ('data', *COMMON, *OFFLINE, *EVALUATION, 'run.from_checkpoint'),
        '--configs tiny --data ~/logdir/catch --task toy_catch --run.updates 6000',
    ),
    'eval_only': (
        'Plays evaluation episodes with a trained agent and logs their scores.\n'
        'It ends by a signal; `dreamer eval LOGDIR` plays a given number of episodes.',
        (*COMMON, 'run.from_checkpoint', *EVALUATION),
        '--configs tiny --run.from_checkpoint ~/logdir/catch/ckpt',
    ),
    'parallel': (
        'Trains with one process per role: agent, replay, logger, environments. Roles\n'
        'that fail are restarted. The same command continues the run in its --logdir.',
        (*COMMON, *LENGTH, 'engine', 'run.envs_per_worker', 'run.max_restarts'),
        '--configs atari size50m --task atari_pong --run.envs 16',
    ),
    'parallel_agent': (
        'The agent of a distributed run: it acts, learns, and owns the folder.',
        (*COMMON, *LENGTH, *ADDRESSES),
        '--configs tiny --logdir /data/catch --run.actor_addr host-a:7000',
    ),
    'parallel_replay': (
        'The replay of a distributed run.',
        ('logdir', *ADDRESSES, 'replay.size', 'replay.max_gb', 'replay.dir'),
        '--configs tiny --logdir /data/catch --run.replay_addr host-b:7001',
    ),
    'parallel_logger': (
        'The logger of a distributed run.',
        ('logdir', 'logger.outputs', *ADDRESSES),
        '--configs tiny --logdir /data/catch --run.logger_addr host-a:7002',
    ),
    'parallel_envs': (
        'All environments of a distributed run, as processes of this machine.',
        ('task', 'logdir', 'run.actor_addr', *WORKERS),
        '--configs tiny --logdir ~/catch --run.actor_addr host-a:7000',
    ),
    'parallel_env': (
        'One worker with environments of a distributed run.',
        ('task', 'logdir', 'run.actor_addr', *WORKERS),
        '--configs tiny --logdir ~/catch --run.first_env 3',
    ),
    'demo': (
        'Trains a small agent on a built-in game from pixels, and draws its curve and\n'
        'its predictions into the folder demo/. It ends at 95 % of the way to\n'
        'the optimum, at the latest after --run.steps.',
        ('run.steps', 'run.duration', 'seed', 'script'),
        '',
    ),
    'config': (
        'Prints the options that a command line stands for, as YAML.\n'
        '--describe PATTERN prints those whose name or comment matches, with comments.',
        (),
        "--configs crafter size12m --describe 'replay\\..*'",
    ),
}


def page(command: str) -> str:
    """The help of one command that takes the options of a run."""
    text, names, example = PAGES[command]
    options = {option.name: option for option in describe.declared()}
    for name, value in config_lib.COMMAND_DEFAULTS.get(command, {}).items():
        options[name] = options[name]._replace(value=repr(value))
    lines = [
        f'usage: dreamer {command} [--configs PRESET ...] [--OPTION VALUE ...]',
        '',
        text,
    ]
    if names:
        lines += ['', *describe.table([options[name] for name in names], '--')]
    lines += ['', f'  dreamer {command} {example}'.rstrip(), '']
    lines += [
        f'Presets: {", ".join(describe.presets())}.',
        "All options: dreamer config --describe '.*'; of this list: --describe NAME.",
    ]
    return '\n'.join(lines) + '\n'
