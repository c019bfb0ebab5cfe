"""Protocol: what the roles of a distributed run say to each other.

    env worker -> actor.act (training), actor.act_eval (evaluation)
        ({'envid': int32 [n], 'session': uint8 [n, 16], 'serial': int64 [n]}, obs)
        -> {'acts': acts, 'reset': bool [n], 'stop': bool [n]}; no acts after a stop
        obs, acts: {key: [n, ...]} of the environments of a worker that are ready;
        session: random bytes of the worker process; serial: counts the steps of one
        environment within the session. Batched over all workers, answered once. An
        unknown environment in mid-episode gets `reset` and leaves no trace. Rows that
        do not fit the run are answered with RowsError, which ends their worker; when
        the agent fails there is no answer, and the worker asks the next one.

    evaluation worker -> actor.evaluate
        (session uint8 [16], envid: int, period: int) -> {'period': int, 'stop': bool}
        Blocks until an evaluation is due that is later than `period`, which is -1 for
        a worker that has not evaluated yet, or until another worker has come in its
        place, for the environments from `envid` on.

    env worker -> actor.leave
        (session uint8 [16]) -> None: it was told to stop, or ends for another reason.

    actor -> replay.add_batch (training), replay.add_batch_eval (evaluation)
        (steps [n, ...], streams int64 [n], serials int64 [n])
        -> {'steps': int, 'stop': bool}: training steps committed so far, and whether
        run.steps is reached. Rows of training wait for the rate limiter, one request
        after the other, those of evaluation for nobody.
        A stream is one environment in one session, named by 63 random bits; repeats
        are recognized by serial. Serials grow but may have gaps.

    actor -> logger.tran
        (transitions {key: [n]}, envids int32 [n], is_eval bool [n], steps int) -> None
        reward, is_first, is_last, the scalars among the `log/` keys, and `serial` as
        above, since messages may be dropped; rows of one environment are in order,
        several of its steps may be in one message. Films of single episodes come as
        videos by `add`, when they are complete.

    learner -> replay.sample_batch_train | sample_batch_report | sample_batch_eval
        (number: int) -> batch {key: [B, T, ...]}, {} at the end of the run
        number: place of the batch's first sequence in the order of training, over
        restarts; the limiter adopts it, so that batches that were fetched but never
        trained do not count. Waits until replay is filled, for training also for the
        rate limiter. The end: run.steps is reached and no update is owed.
        Reports count from 0 in each session of the learner: every consec_report
        batches from there on are one sequence.

    learner -> replay.update
        ({'stepid': [B, T, 20], **latents}) -> None

    any role -> logger.add
        (metrics {name: scalar or array}, prefix: str, steps: int) -> None
        steps: environment steps committed to replay, 0 if the role does not know.

    learner -> replay.save, logger.save
        () -> {'version': str, 'counters': {name: int}}: the save is on the disk. The
        learner decides when, so that the saves of all roles belong together.

    learner -> replay.finish
        () -> None. The run has ended: save, exit.

    learner -> logger.finish
        (steps: int) -> None. The run has ended after so many steps: write, exit.

Addresses may be served by jobs on other machines, in any order of starting. A worker
process runs the environments of one `WorkerPlan` (settings.py); servers and clients are
opened by context.py; the actor and the learner share a `RunState` (run_state.py).
"""

__all__ = ['ACTOR', 'LOGGER', 'REPLAY', 'SAVE']

ACTOR = ('act', 'act_eval', 'evaluate', 'leave')
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
