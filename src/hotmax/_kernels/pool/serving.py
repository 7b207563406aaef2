"""How threads share a job: the caller posts it, helpers that spin see it within a microsecond.

A caller takes the pool, opens its job, and works on it as well. When no row is left it closes the
job and waits until no helper is at work on it. A helper first counts itself in and then looks
whether the job is still open, so that no job ends with a helper inside. If the pool is taken, the
caller computes alone.
"""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.pool.atomic import (
    atomic_load,
    call_address,
    cycles,
    exchange,
    fetch_add,
    pause,
)
from hotmax._kernels.pool.jobs import NEXT, OWNS_POOL, ROWS, describe, fields_of
from hotmax._kernels.simd.memory import address_of

# The fields of a pool's state, each that several threads write to in a cache line of its own.
TAKEN = 0  # 1 while a caller uses the pool
OPEN = 8  # the number of the open job, 0 if there is none
FUNCTION, JOB, NUMBER = 16, 17, 18  # of the open job; how many jobs there have been
ACTIVE = 24  # how many helpers are at work on a job
SUMMONS = 32  # changes when helpers are to return to Python
STATE_FIELDS = 40

DONE, MORE, WAITING, FAILED = 0, 1, 2, 3  # what `post` and `continue_job` return

PATIENCE = 4000  # pauses, some 100 microseconds, before a caller lets the system wait for helpers
GAP = 5_000_000  # cycles between two looks, some 2 milliseconds: another thread had the processor


@kernel
def share_job(state, function, job, x, out, temperature, step, streamed):
    """Describe and post a job."""
    describe(job, x, out, temperature, step, streamed)
    return post(state, function, job)


@inline
def post(state, function, job):
    """Post a job, if the pool is free, and begin to work on it."""
    if exchange(state, TAKEN, 1) == 0:
        job[OWNS_POOL] = 1
        state[FUNCTION], state[JOB] = function, address_of(job)
        state[NUMBER] += 1
        exchange(state, OPEN, state[NUMBER])
    return work_on(state, function, job)


@kernel
def continue_job(state, function, job):
    """Go on with a job after MORE or WAITING came back."""
    return work_on(state, function, job)


@inline
def work_on(state, function, job):
    before = atomic_load(job, NEXT)
    call_address(function, address_of(job))
    claimed = atomic_load(job, NEXT)
    if claimed < job[ROWS]:
        return MORE if claimed > before else FAILED  # no memory: else it would have claimed a range
    return DONE if leave(state, job) else WAITING


@inline
def leave(state, job):
    """Close the job and wait for helpers that are still at work on it; False if that takes long."""
    if job[OWNS_POOL] == 0:
        return True
    exchange(state, OPEN, 0)
    for _ in range(PATIENCE):
        if atomic_load(state, ACTIVE) == 0:
            job[OWNS_POOL] = 0
            exchange(state, TAKEN, 0)
            return True
        pause()
    return False


@kernel
def abandon_job(state, job):
    """Let nobody claim a further row of a job; False if helpers are still at work on it."""
    exchange(job, NEXT, job[ROWS])
    return leave(state, job)


@kernel
def serve(state, summons, patience):
    """Work on the jobs that are posted; return after `patience` pauses without one.

    Also return if the state's SUMMONS are no longer `summons`, and at once if another thread wants
    this processor.
    """
    finished = 0
    idle, last = 0, cycles()
    while idle < patience and atomic_load(state, SUMMONS) == summons:
        number = atomic_load(state, OPEN)
        if number != 0 and number != finished:
            fetch_add(state, ACTIVE, 1)
            if atomic_load(state, OPEN) == number:
                fields = fields_of(state[JOB])
                before = atomic_load(fields, NEXT)
                call_address(state[FUNCTION], state[JOB])
                claimed = atomic_load(fields, NEXT)
                if claimed >= fields[ROWS] or claimed == before:  # none left, or no memory
                    finished = number
            fetch_add(state, ACTIVE, -1)
            idle, last = 0, cycles()
            continue
        pause()
        idle += 1 if number == 0 else 0  # while a job is open, its caller may soon have the next
        now = cycles()
        if now - last > GAP:
            return
        last = now
