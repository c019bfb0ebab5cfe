"""Searches for good settings with Optuna; trials that lag behind end early.

pip install 'dreamer-parallel[optuna]'
python examples/optuna_search.py [FOLDER] [TRIALS] [STEPS] [PRESET]

The same command goes on with a search of that folder.
"""

import pathlib
import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import dreamerv3

TASK = 'toy_catch'
RUNGS = 10  # times in a run at which trials are compared
OPTIONS = {'run.envs': 4, 'logger.outputs': 'jsonl'}  # of all trials


def objective(trial, folder, steps, preset):
    options = {
        **OPTIONS,
        'agent.opt.lr': trial.suggest_float('agent.opt.lr', 1e-4, 3e-3, log=True),
        'agent.actent': trial.suggest_float('agent.actent', 1e-3, 3e-2, log=True),
    }
    reported = set()

    def on_log(step, metrics):
        """Reports a score once in each tenth of the run; True ends the run."""
        rung = int(RUNGS * step / steps)
        if 'episode/score' not in metrics or rung in reported:
            return False
        reported.add(rung)
        trial.report(metrics['episode/score'], rung)
        return trial.should_prune()

    run = dreamerv3.train(
        task=TASK,
        logdir=folder / f'trial-{trial.number}',
        steps=steps,
        configs=[preset],
        options=options,
        on_log=on_log,
    )
    if run.outcome.reason == 'on_log':
        raise optuna.TrialPruned
    if run.outcome.state != 'finished':
        trial.study.stop()  # Ctrl-C has ended the run, and ends the search.
        raise optuna.TrialPruned  # The score of half a run is none of these settings.
    return float(run.scores[-100:].mean())


def search(folder, trials=20, steps=8000, preset='tiny', pruner=None):
    folder = pathlib.Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / 'search.log'))),
        study_name=TASK,
        load_if_exists=True,
        direction='maximize',
        sampler=optuna.samplers.TPESampler(seed=0),
        # Four trials run to their end before any is compared with their median.
        pruner=pruner or optuna.pruners.MedianPruner(4, n_warmup_steps=2),
    )
    call = lambda trial: objective(trial, folder, float(steps), preset)
    study.optimize(call, n_trials=int(trials))
    return study


if __name__ == '__main__':
    study = search(*(sys.argv[1:] or ['logdir/optuna']))
    states = [trial.state.name for trial in study.trials]
    print({state: states.count(state) for state in sorted(set(states))})
    if 'COMPLETE' in states:
        print('best score', round(study.best_value, 3), 'with', study.best_params)
