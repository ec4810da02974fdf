"""The start of one rank, directly, without Horovod or MPI."""

from replica.trainer.starters.contract import RankRequest


def start_alone(request: RankRequest) -> list[str]:
    """Start the command itself. Raises ValueError for more than one rank."""
    if request.ranks != 1:
        raise ValueError(f"the starter 'none' starts 1 rank, not {request.ranks}")
    return list(request.command)
