"""Groups and parameter servers of a hybrid training in virtual time: what they would record.

Nothing is trained and nobody communicates. A simulation of events follows each update from a group
to the servers and back by the protocol of docs/hybrid.md, so that staleness, waits and loads follow
from the paces of groups and servers.
"""

from replica.trainer.simulated_groups.events import GroupsInTime
from replica.trainer.simulated_groups.paces import ExchangePlan, GroupPace, ServerPace, parameter_sizes, server_bytes

__all__ = ["ExchangePlan", "GroupPace", "GroupsInTime", "ServerPace", "parameter_sizes", "server_bytes"]
