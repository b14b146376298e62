"""Writers and readers, each in a process of its own, one job after the other: ``offload_table.worker DIRECTORY JOBS``.

This process only loads torch and transformers, which takes longer than all the rest, and forks before anything is
allocated. Jobs are JSON; of each, what its processes answer is printed as lines of JSON.
"""

import json
import multiprocessing
import sys
from typing import Any

import torch
from transformers.utils import logging

from offload_table.models import generate
from offload_table.ranks import Rank


def answer(directory: str, job: dict[str, Any], rank: int, answers: Any) -> None:
    """Do what is a process's part of a job."""
    if job["what"] == "models":
        answers.put([generate(directory + "/models", job, family) for family in job["families"]])
        return
    one = Rank(directory + "/ranks", job, rank)
    answers.put(one.write() if job["action"] == "write" else one.read())
    one.offloader.close()


def summed(of_ranks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The lines of all ranks as one each: the fewest tokens reused, and bytes of all."""
    lines = []
    for same in zip(*of_ranks, strict=True):
        line = dict(same[0])
        for name, sum_of in (("reused", min), ("bytes", sum), ("wrong", sum)):
            if len(same) > 1:
                line[name] = sum_of(one[name] for one in same)
        lines.append(line)
    return lines


def main() -> int:
    directory, jobs = sys.argv[1], json.loads(sys.argv[2])
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    for job in jobs:
        answers = context.SimpleQueue()
        ranks = range(job.get("tensor", 1))
        processes = [context.Process(target=answer, args=(directory, job, rank, answers)) for rank in ranks]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            return 1
        for line in summed([answers.get() for _ in ranks]):
            print(json.dumps(job | line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
