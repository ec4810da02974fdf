"""Random streams folded from one seed."""

from aiperf.seeds import fold_seed


def test_seeds_are_folded_from_every_part() -> None:
    parts = [(1, "search", 1, 0), (2, "search", 1, 0), (1, "train", 1, 0), (1, "search", 2, 0), (1, "search", 1, 1)]
    seeds = [fold_seed(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert seeds == [fold_seed(*part) for part in parts]
    assert all(0 <= seed < 2**31 for seed in seeds)
