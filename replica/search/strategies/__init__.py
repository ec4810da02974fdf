"""Search strategies by name (`search.strategy`): the place to register a new one."""

from aiperf.registry import Registry
from replica.search.strategies.contract import StrategyFactory

STRATEGIES: Registry[StrategyFactory] = Registry(
    "search strategy",
    {
        "bayesian": "replica.search.strategies.bayesian:BayesianStrategy",
        "random": "replica.search.strategies.random:RandomStrategy",
        "unguided": "replica.search.strategies.random:UnguidedStrategy",
    },
)

__all__ = ["STRATEGIES"]
