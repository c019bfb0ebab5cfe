"""Protocol: the messages between the roles of a distributed run.

    env worker -> actor.act (training), actor.act_eval (evaluation)
        ({'envid': int32 [n], 'worker_id': uint8 [n, 16], 'serial': int64 [n]}, obs)
        -> {'acts': acts, 'reset': bool [n], 'stop': bool [n]}; no acts after a stop
        obs, acts: {key: [n, ...]} of the environments of a worker that are ready.
        worker_id: random bytes, new for every worker process. serial: counts the steps
        of one environment of this worker. Batched over all workers, answered once. An
        unknown environment in mid-episode gets `reset`, and its row is not stored. Rows
        that do not fit the run are answered with RowsError, which ends their worker. If
        the agent fails there is no answer, and the worker asks the next agent process.

    evaluation worker -> actor.evaluate
        (worker_id uint8 [16], envid: int, period: int) -> {'period': int, 'stop': bool}
        Blocks until an evaluation later than `period` is due, -1 before the first one,
        or until another worker replaces this one, for the environments from `envid` on.

    env worker -> actor.usage
        (worker_id uint8 [16], is_eval: bool, figures {name: number or text}) -> None
        What the process of a worker has used since its last message, once per
        run.log_every, and how long its environments took to step.

    env worker -> actor.leave
        (worker_id uint8 [16]) -> None: the worker ends, because of a stop or otherwise.

    actor -> replay.add_batch (training), replay.add_batch_eval (evaluation)
        (steps [n, ...], streams int64 [n], serials int64 [n])
        -> {'steps': int, 'stop': bool}: committed training steps, and whether run.steps
        is reached. Rows for training wait for the rate limiter, one request after the
        other. Rows for evaluation do not wait. A stream is one environment of one
        worker, named by 63 random bits. Serials recognize repeats; they grow but may
        have gaps.

    actor -> logger.tran
        (transitions {key: [n]}, envids int32 [n], is_eval bool [n], steps int) -> None
        Keys: reward, is_first, is_last, the scalars among the `log/` keys, and `serial`
        as above, since messages may be dropped. Rows of one environment are in order,
        and one message may hold several of its steps. Films of single episodes are
        sent by `add` as videos, as soon as they are complete.

    learner -> replay.sample_batch_train | sample_batch_report | sample_batch_eval
        (number: int) -> batch {key: [B, T, ...]}, {} at the end of the run
        number: place of the batch's first sequence in the order of training, over
        restarts. The limiter adopts it, so that batches that were fetched but never
        trained on do not count. Waits until replay is filled, and for training also for
        the rate limiter. The end: run.steps is reached and no update is owed.
        Reports count from 0 in each learner process: every consec_report batches from
        there on are one sequence.

    learner -> replay.update
        ({'stepid': [B, T, 20], **latents}) -> None

    any role -> logger.add
        (metrics {name: scalar or array}, prefix: str, steps: int) -> None
        steps: environment steps committed to replay, 0 if the role does not know.

    learner -> replay.save, logger.save
        () -> {'version': str, 'counters': {name: int}}: the save is on the disk. The
        learner chooses the time, so that the saves of all roles belong together.

    learner -> replay.finish
        () -> None. The run has ended: save, exit.

    learner -> logger.finish
        (steps: int) -> None. The run has ended after so many steps: write, exit.

With `run.transport portal`, clients of the reference implementation are answered, too:
see reference_calls.py.

Servers may be jobs on other machines, started in any order. A worker process runs the
environments of one `WorkerPlan` (settings.py). `RoleContext` (context.py) makes servers
and clients. The actor and the learner share a `RunState` (run_state.py).
"""

__all__ = ['ACTOR', 'LOGGER', 'REPLAY', 'SAVE']

ACTOR = ('act', 'act_eval', 'evaluate', 'usage', 'leave')
REPLAY = (
    'add_batch',
    'add_batch_eval',
    'sample_batch_train',
    'sample_batch_report',
    'sample_batch_eval',
    'update',
    'finish',
)
LOGGER = ('add', 'tran', 'finish')
SAVE = 'save'  # of replay and logger
